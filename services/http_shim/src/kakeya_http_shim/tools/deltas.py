"""What a parser of tool calls gives out."""

import secrets
import string
from collections.abc import Iterable
from dataclasses import dataclass

_ID_LETTERS = string.ascii_letters + string.digits
NUM_ID_LETTERS = 9
"""As some chat templates demand. Calls of ours are known by it where they come back."""


@dataclass(frozen=True, slots=True)
class Content:
    """Text of the answer that is no call."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """A call begins; its arguments follow.

    Attributes:
        index: from 0 within the answer.
        id: nine letters and digits.
    """

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentText:
    """A piece of a call's arguments; those of one index, joined, are a JSON object."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The answer ended within a call, behind calls that it had made, or right behind the mark that opens one.

    It is no call, and as a part of the content it would be noise behind the calls. Nothing follows it.

    Attributes:
        text: as the model wrote it.
    """

    text: str


Delta = Content | CallBegun | ArgumentText | Unfinished


@dataclass(frozen=True, slots=True)
class MadeCall:
    """A whole call.

    Attributes:
        arguments: JSON, an object.
    """

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    """All deltas of an answer together."""

    content: str
    calls: tuple[MadeCall, ...]
    unfinished: str


def joined(deltas: Iterable[Delta]) -> Answer:
    """What a client has that reads them all, and what an answer that is not streamed says."""
    content: list[str] = []
    begun: list[CallBegun] = []
    arguments: list[list[str]] = []
    unfinished = ""
    for delta in deltas:
        match delta:
            case Content(text):
                content.append(text)
            case CallBegun():
                begun.append(delta)
                arguments.append([])
            case ArgumentText(index, text):
                arguments[index].append(text)
            case Unfinished(text):
                unfinished = text
    calls = (MadeCall(call.id, call.name, "".join(texts)) for call, texts in zip(begun, arguments, strict=True))
    return Answer("".join(content), tuple(calls), unfinished)


def merged(deltas: Iterable[Delta]) -> tuple[Delta, ...]:
    """The same, with texts that follow one another as one."""
    kept: list[Delta] = []
    for delta in deltas:
        match (kept[-1] if kept else None), delta:
            case Content(before), Content(text):
                kept[-1] = Content(before + text)
            case ArgumentText(index, before), ArgumentText(same, text) if same == index:
                kept[-1] = ArgumentText(index, before + text)
            case _:
                kept.append(delta)
    return tuple(kept)


def new_call_id() -> str:
    """Nine letters and digits at random: 53 bits."""
    return "".join(secrets.choice(_ID_LETTERS) for _ in range(NUM_ID_LETTERS))
