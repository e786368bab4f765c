"""Subcommands: modules with a SUMMARY and a main(argv), found by entry point."""

from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, cast

GROUP = "kakeya.commands"


class Command(Protocol):
    """What a module of such a group offers."""

    SUMMARY: str

    def main(self, argv: list[str]) -> int:
        """Runs the command and returns its exit status."""
        ...


class BrokenCommand(Exception):
    """A command is installed and cannot be imported; the message says what is missing."""


def find(group: str = GROUP) -> dict[str, EntryPoint]:
    """The commands of all installed parts by name, sorted; none is imported."""
    return {point.name: point for point in sorted(entry_points(group=group))}


def load(point: EntryPoint) -> Command:
    """Imports a command. Raises BrokenCommand."""
    try:
        return cast(Command, point.load())
    except ModuleNotFoundError as error:
        raise BrokenCommand(f"needs the module {error.name!r}, which is not installed") from error
    except (ImportError, AttributeError) as error:
        raise BrokenCommand(f"cannot be imported: {error}") from error


def summary(point: EntryPoint) -> str:
    """The command's line in the list of commands."""
    try:
        return load(point).SUMMARY
    except BrokenCommand as error:
        return f"({error})"
