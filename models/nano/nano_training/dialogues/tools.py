"""Tool calls in the Hermes format: which tools there are, a call, its result, the answer."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from nano_training.dialogues import words
from nano_training.dialogues.message import Message, tool_call
from nano_training.dialogues.wording import typed

Answer = Callable[[dict[str, Any], dict[str, Any]], str]


@dataclass(frozen=True)
class Tool:
    """A function that the model may call.

    Attributes:
        parameters: name to JSON type; all are required.
        draw: arguments of a call.
        asked: what a user says; `{name}` stands for an argument.
        result: what the tool returns for some arguments.
        answer: what the assistant makes of the result; formatted with arguments and result.
    """

    name: str
    description: str
    parameters: dict[str, str]
    draw: Callable[[Random], dict[str, Any]]
    asked: tuple[str, ...]
    result: Callable[[Random], dict[str, Any]]
    answer: str

    @property
    def signature(self) -> dict[str, Any]:
        """As an OpenAI client sends it."""
        properties = {name: {"type": kind} for name, kind in self.parameters.items()}
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": {"type": "object", "properties": properties, "required": list(self.parameters)},
            },
        }


TOOLS: Final = (
    Tool(
        "get_weather",
        "Get the weather of a city.",
        {"city": "string"},
        lambda random: {"city": random.choice(words.CITIES)},
        (
            "What is the weather in {city}?",
            "How is the weather in {city}?",
            "Tell me the weather in {city}.",
            "What is the weather like in {city}?",
        ),
        lambda random: {
            "temperature": random.randint(0, 39),
            "sky": random.choice(("sunny", "cloudy", "rainy", "windy")),
        },
        "It is {temperature} degrees and {sky} in {city}.",
    ),
    Tool(
        "get_time",
        "Get the local time of a city.",
        {"city": "string"},
        lambda random: {"city": random.choice(words.CITIES)},
        ("What time is it in {city}?", "Tell me the time in {city}.", "How late is it in {city}?"),
        lambda random: {"time": f"{random.randint(0, 23)}:{random.randint(10, 59)}"},
        "It is {time} in {city}.",
    ),
    Tool(
        "set_timer",
        "Set a timer.",
        {"minutes": "integer"},
        lambda random: {"minutes": random.randint(1, 60)},
        (
            "Set a timer for {minutes} minutes.",
            "Please set a timer of {minutes} minutes.",
            "Wake me in {minutes} minutes.",
        ),
        lambda random: {"ok": True},
        "The timer is set for {minutes} minutes.",
    ),
    Tool(
        "send_message",
        "Send a message to a person.",
        {"to": "string", "text": "string"},
        lambda random: {
            "to": random.choice(words.NAMES),
            "text": random.choice(("hello", "call me", "I am late", "see you soon", "thank you", "come home")),
        },
        ("Send a message to {to}: {text}", "Write to {to}: {text}", "Tell {to}: {text}"),
        lambda random: {"ok": True},
        "I sent your message to {to}.",
    ),
    Tool(
        "add_event",
        "Add an event to the calendar.",
        {"title": "string", "day": "string"},
        lambda random: {"title": random.choice(words.HOBBIES), "day": random.choice(words.DAYS)},
        ("Put {title} on {day} in my calendar.", "Add {title} on {day} to my calendar."),
        lambda random: {"ok": True},
        "I added {title} on {day}.",
    ),
    Tool(
        "get_price",
        "Get the price of a thing.",
        {"item": "string"},
        lambda random: {"item": random.choice(words.THINGS_TO_BUY)},
        ("What is the price of {item}?", "How much do {item} cost?", "Look up the price of {item}."),
        lambda random: {"price": random.randint(1, 99)},
        "The price of {item} is {price}.",
    ),
    Tool(
        "switch_light",
        "Switch the light of a room.",
        {"room": "string", "state": "string"},
        lambda random: {"room": random.choice(words.PLACES), "state": random.choice(("on", "off"))},
        ("Switch {state} the light in the {room}.", "Turn {state} the light in the {room}."),
        lambda random: {"ok": True},
        "The light in the {room} is {state} now.",
    ),
    Tool(
        "find_contact",
        "Find the phone number of a person.",
        {"name": "string"},
        lambda random: {"name": random.choice(words.NAMES)},
        ("What is the phone number of {name}?", "Find the number of {name}.", "Look up the phone number of {name}."),
        lambda random: {"number": str(random.randint(10000, 99999))},
        "The phone number of {name} is {number}.",
    ),
)


def use(random: Random, tool: Tool) -> list[Message]:
    """A question, the call, the result, the answer."""
    arguments, result = tool.draw(random), tool.result(random)
    question = typed(random, random.choice(tool.asked).format(**arguments))
    return [
        Message("user", question),
        Message("assistant", tool_call(tool.name, arguments)),
        Message("tool", json.dumps(result)),
        Message("assistant", tool.answer.format(**arguments, **result)),
    ]
