"""What the users of the demo's conversations say: small talk, sums, lists, and facts that they ask for later.

Written for kakeya-nano, in the words it knows, and for lanes of 240 tokens, in which the last seven turns or so are in
sight beside a pinned system prompt. Other models hold the same conversations.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

Tools = tuple[Mapping[str, Any], ...]
"""As OpenAI's chat completions have them."""


@dataclass(frozen=True)
class Line:
    """What the user says in one turn, or what a tool returns.

    Attributes:
        expects: what the answer should hold; "" for anything.
        forgotten: what it should not know any more, as it stood in earlier turns; "" where it asks for no such thing.
        is_result: it is what the tool returns that was called in the turn before.
    """

    text: str
    expects: str = ""
    forgotten: str = ""
    is_result: bool = False


@dataclass(frozen=True)
class Script:
    """One conversation; the system prompt is pinned.

    Attributes:
        tools: that the model may call. A conversation with tools is held over HTTP, whose clients have them.
    """

    title: str
    system: str
    lines: tuple[Line, ...]
    tools: Tools = ()

    def without_expectations(self) -> "Script":
        """What is said, to models and in windows for which it was not written."""
        return replace(self, lines=tuple(replace(line, expects="", forgotten="") for line in self.lines))


UNKNOWN: Final = "do not know"
"""What an honest model says of a fact that has left its window."""


def _unknown(text: str, forgotten: str) -> Line:
    """A question for something that was said and has left the window."""
    return Line(text, UNKNOWN, forgotten)


_ACQUAINTED: Final = Script(
    "getting acquainted",
    "You are Kakeya, a small and friendly assistant. The secret word is falcon.",
    (
        Line("Hello!"),
        Line("My name is Laura."),
        Line("How are you?"),
        Line("What is 17 + 25?", "42"),
        Line("What is my name?", "Laura"),
        Line("My dog is called Rex."),
        Line("Tell me a joke."),
        Line("What is 9 times 8?", "72"),
        Line("What is the capital of Norway?", "Oslo"),
        Line("What is my dog called?", "Rex"),
        Line("My train leaves at 7:45."),
        Line("Repeat: the old owl sings near the barn", "the old owl sings near the barn"),
        Line("Make a shopping list: apples, milk and bread", "- milk"),
        Line("When does my train leave?", "7:45"),
        Line("Replace owl with fox in: the old owl sings near the barn", "the old fox sings near the barn"),
        Line("Name three colors."),
        Line("As JSON: name=Peter, age=31, city=Oslo", '"city": "Oslo"'),
        Line("I play the violin."),
        Line("What is 64 - 28?", "36"),
        Line("Thank you!"),
        Line("Which instrument do I play?", "violin"),
        Line("The red key is in the garage."),
        Line("What is the opposite of early?", "late"),
        Line("Count to 7.", "5, 6, 7"),
        Line("Where is the red key?", "garage"),
        Line("Which day comes after Friday?", "Saturday"),
        Line("Write JSON with name Nina and job baker.", '"job": "baker"'),
        Line("How much can you remember?"),
        _unknown("When does my train leave?", "7:45"),
        _unknown("What is my dog called?", "Rex"),
        Line("What is the secret word?", "falcon"),
        Line("My favorite fruit is cherries."),
        Line("Subtract 19 from 50."),
        Line("How are you today?"),
        Line("What is the last word of: copper river maple"),
        Line("What is my favorite fruit?", "cherries"),
        Line("Ivan's job is pilot."),
        Line("Repeat after me: the shy hen hides inside the basket", "the shy hen hides inside the basket"),
        Line("What is 6 times 6?", "36"),
        Line("Make a list of milk, honey and rice.", "- honey"),
        Line("What is Ivan's job?", "pilot"),
        Line("What is the capital of Egypt?"),
        Line("Count to 5.", "3, 4, 5"),
        Line("Goodbye!"),
    ),
)

_OFFICE: Final = Script(
    "a day at the office",
    "You are a helpful assistant. The user's name is Martin. The user's meeting day is Thursday.",
    (
        Line("Good morning!"),
        Line("My boss is Helga."),
        Line("Calculate 12 + 39."),
        Line("I put the green umbrella in the office."),
        Line("Who is my boss?", "Helga"),
        Line("Multiply 7 by 6."),
        Line("What is the first word of: maple lamp tiger stone"),
        Line("Where is the green umbrella?", "office"),
        Line("My favorite drink is coffee."),
        Line("Make a numbered list of soap, paper and candles."),
        Line("Please remember: my room number is 308."),
        Line("What is the sum of 21 and 48?"),
        Line("What do I like to drink?", "coffee"),
        Line("Change barn to tower: the quiet deer waits behind the barn"),
        Line("Which room am I in?", "308"),
        Line("Tell me a story."),
        Line("Sara's job is dentist."),
        Line("What is 80 - 45?"),
        Line("Make a JSON list of eggs, rice and tea."),
        Line("What is Sara's job?", "dentist"),
        Line("Say: The slow cow dreams above the shed."),
        Line("What is the capital of Japan?"),
        Line("I am bored."),
        Line("Remove the word small from: the small fox runs quietly"),
        Line("Compute 5 + 5, 8 - 3 and 4 times 4."),
        Line("Great, thank you!"),
        Line("What is the opposite of full?"),
        _unknown("Who is my boss?", "Helga"),
        _unknown("Where is the green umbrella?", "office"),
        Line("When is my meeting?", "Thursday"),
        Line("Do you know who I am?", "Martin"),
        Line("My cat is called Luna."),
        Line("Multiply 9 by 5."),
        Line("Name three fruits."),
        Line("What is my cat called?", "Luna"),
        Line("Copy this: the lazy goat rests beside the ladder"),
        Line("What is 73 - 20?"),
        Line("As JSON: name=Sofia, age=44"),
        Line("Tell me a joke."),
        Line("My locker number is 517."),
        Line("Which month comes after May?"),
        Line("What is my locker number?", "517"),
        Line("Bread, milk and soap: make a list."),
        Line("Goodbye!"),
    ),
)

_WEATHER_TOOL: Final = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def _result(expects: str = "", **values: int | str) -> Line:
    """What the tool returned."""
    return Line(json.dumps(values), expects, is_result=True)


_WEATHER: Final = Script(
    "a tool that tells the weather",
    "You are Kakeya.",
    (
        Line("Hello, how are you?"),
        Line("What is the weather in Rome?", '"city": "Rome"'),
        _result("24 degrees and sunny in Rome", temperature=24, sky="sunny"),
        Line("My sister is called Ingrid."),
        Line("What is 33 + 8?"),
        Line("What is my sister called?", "Ingrid"),
        Line("Thank you!"),
        Line("Tell me the weather in Helsinki."),
        _result(temperature=3, sky="windy"),
        Line("Repeat after me: the brave lion jumps quietly"),
        Line("What is 10 times 7?"),
        Line("What can you do?"),
        Line("Make a list of key, rope and mirror."),
        Line("My car is silver."),
        Line("What is the second word of: tower happy falcon"),
        Line("Which color is my car?", "silver"),
        Line("How is the weather in Cairo?", '"city": "Cairo"'),
        _result("38 degrees and cloudy in Cairo", temperature=38, sky="cloudy"),
        Line("Subtract 15 from 60."),
        Line("Name two animals."),
        Line("What is the capital of Peru?"),
        Line("Do you know a joke?"),
        Line("As JSON: color=blue, day=Monday"),
        Line("What is 6 + 7?"),
        Line("My lucky number is 52."),
        Line("Write sleeps instead of waits: the tall horse waits under the tower"),
        Line("What is my lucky number?", "52"),
        Line("Copy this: the gentle hen walks alone"),
        Line("You are funny."),
        _unknown("What is my sister called?", "Ingrid"),
        Line("What is the weather like in Dublin?", '"city": "Dublin"'),
        _result("11 degrees and rainy in Dublin", temperature=11, sky="rainy"),
        Line("Thanks!"),
        Line("I live in Lisbon."),
        Line("What is 25 + 25?"),
        Line("Make a JSON list of pears, eggs and tea."),
        Line("Where do I live?", "Lisbon"),
        Line("How is the weather in Lisbon?", '"city": "Lisbon"'),
        _result("27 degrees and sunny in Lisbon", temperature=27, sky="sunny"),
        Line("What is the opposite of cold?"),
        Line("Say: Clara plays the harp."),
        Line("What is 8 times 3?"),
        Line("That is all, thank you."),
        Line("Bye!"),
    ),
    (_WEATHER_TOOL,),
)

SCRIPTS: Final = (_ACQUAINTED, _OFFICE, _WEATHER)
NUM_TURNS: Final = len(_ACQUAINTED.lines)
"""Of each script."""
