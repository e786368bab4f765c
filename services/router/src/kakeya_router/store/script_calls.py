"""Calls of Lua scripts, as commands of Redis."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kakeya_router.store.scripts import Script, Text
from kakeya_router.store.servers.server import Command, Generation
from kakeya_router.store.servers.slots import slot_of

Argument = str | int | bytes | Generation | None
"""Of a script, which has None as '' and a bool as 1 or 0."""
ScriptCall = tuple[Sequence[str], Mapping[str, Argument | Sequence[str]]]  # keys and arguments
Arranged = tuple[Sequence[str], Sequence[str | int | bytes | Generation]]  # as KEYS and ARGV


def together(script: Script, calls: Iterable[Arranged]) -> list[Any]:
    """The command that runs a script for several calls, whose keys are in one slot."""
    names: list[str] = []
    values: list[Any] = []
    for keys, arguments in calls:
        names += keys
        values += (len(keys), len(arguments), *arguments)
    return ["EVALSHA", script.together.sha, len(names), *names, *values]


def with_text(text: Text, commands: Iterable[Command]) -> list[Command]:
    """Some commands, of those that run a script the first of each slot with its text: servers then know it."""
    known: set[int] = set()
    found: list[Command] = []
    for command in commands:
        slot = slot_of(command) if command[0] == "EVALSHA" else None
        if slot is not None and slot not in known:
            known.add(slot)
            command = ["EVAL", text, *command[2:]]
        found.append(command)
    return found


def in_ms(seconds: float) -> int:
    """As scripts take it."""
    return round(seconds * 1000)
