"""Short histories that stand in for a long one, and others that a suffix must not depend on."""

import secrets
from collections.abc import Sequence
from typing import Any, Final

from kakeya.text.chat_template import Message, Tools
from kakeya.text.rendering.head import said

_CALL_ID = "kakeya123"  # nine letters and digits: some templates ask for that


def _answered(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _called(arguments: str, result: str) -> list[Message]:
    call: dict[str, Any] = {
        "id": _CALL_ID,
        "type": "function",
        "function": {"name": "look", "arguments": arguments},
    }
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": result, "tool_call_id": _CALL_ID, "name": "look"},
    ]


SHORT: Final[Sequence[Message]] = (said("-"),)
"""All that stands before an answer in the short form, but for the head."""

OTHERS: Final[Sequence[Sequence[Message]]] = (
    [said("Where is it?")],
    [said("-"), said("Here?")],
    [said("-"), _answered("-"), said("-")],
    [said("-"), _answered("-"), said("Here?"), _answered("It is."), said("-")],
    [said("-"), *_called("{}", "-")],
    [said("-"), *_called('{"at": "sea"}', "Waves"), _answered("-"), said("-")],
    [said("-"), {**_answered("-"), "reasoning_content": "Hm"}, said("-")],
    [said("-"), *[_answered("-"), said("-")] * 31],
)
"""Of odd and even numbers of messages, few and many, with calls and thoughts and without."""

_RUN = secrets.token_hex(8)  # no client foresees it: what it says must not be taken for one of these texts
OLD_TEXTS: Final = tuple(f"Kakeyaold{number}x{_RUN}" for number in range(3))
OLD: Final[Sequence[Message]] = (said(OLD_TEXTS[0]), _answered(OLD_TEXTS[1]), said(OLD_TEXTS[2]))
"""With texts that must not come out behind the answer."""


def _tools(name: str) -> Tools:
    parameters = {"type": "object", "properties": {}}
    return ({"type": "function", "function": {"name": name, "description": "-", "parameters": parameters}},)


TOOLS: Final = _tools("look")
"""In place of those that a model is given."""
TOOL_NAME: Final = "Kakeyatool"
NAMED_TOOLS: Final = _tools(TOOL_NAME)
"""With a name that no template writes by itself."""


def bare(head: Sequence[Message]) -> list[Message]:
    """System messages without their texts."""
    return [{"role": message["role"], "content": "-"} for message in head]


def renamed(messages: Sequence[Message]) -> tuple[list[Message], list[str]]:
    """The messages with texts that no two of them share, and these texts."""
    changed, texts = [], []
    for number, message in enumerate(messages):
        if message.get("content"):
            texts.append(f"Kakeyanew{number}x{_RUN}")
            message = {**message, "content": texts[-1]}
        changed.append(message)
    return changed, texts
