"""Messages and how a conversation is written: ChatML, tools as in Qwen's and Hermes' format."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, Protocol

Role = Literal["system", "user", "assistant", "tool"]

TOOLS_HEAD = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
TOOLS_TAIL = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)


@dataclass(frozen=True)
class Message:
    """One message; an assistant's tool call is its text."""

    role: Role
    text: str


@dataclass(frozen=True)
class Piece:
    """A stretch of written text that is tokenized by itself.

    Attributes:
        is_answer: the assistant writes it, the end of the turn included.
    """

    text: str
    is_answer: bool


@dataclass(frozen=True)
class Exchange:
    """A user's message, the assistant's answer, and what lies between; or the system message.

    Attributes:
        kind: what is asked for, in a word or two.
        told: keys of the facts that are told here.
        asked: key of the fact that is asked for.
    """

    kind: str
    messages: list[Message]
    told: tuple[str, ...] = ()
    asked: str | None = None


class Filler(Protocol):
    """Draws the messages of an exchange that neither tells nor asks a fact."""

    def __call__(self, random: Random) -> list[Message]: ...


def exchange(question: str, answer: str) -> list[Message]:
    """What most exchanges are: one question, one answer."""
    return [Message("user", question), Message("assistant", answer)]


def system_text(system: str, tools: Sequence[dict[str, Any]]) -> str:
    """The system message with its tools, as the chat template writes it."""
    if not tools:
        return system
    signatures = "".join("\n" + json.dumps(tool) for tool in tools)
    head = f"{system}\n\n" if system else ""
    return f"{head}{TOOLS_HEAD}{signatures}{TOOLS_TAIL}"


def tool_call(name: str, arguments: dict[str, Any]) -> str:
    """An assistant's call, as the chat template writes it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def written(messages: Sequence[Message]) -> Iterator[Piece]:
    """The conversation as the chat template renders it, cut where tokens are cut anyway."""
    for message in messages:
        role, text = message.role, message.text
        if role == "tool":
            role, text = "user", f"<tool_response>\n{text}\n</tool_response>"
        if role == "assistant":
            yield Piece("<|im_start|>assistant\n", is_answer=False)
            yield Piece(f"{text}<|im_end|>", is_answer=True)
            yield Piece("\n", is_answer=False)
        else:
            yield Piece(f"<|im_start|>{role}\n{text}<|im_end|>\n", is_answer=False)
