"""Models that are installed as packages, found by the entry point group `kakeya.models`.

An entry point names a callable without arguments that returns the directory of a checkpoint in the Hub's layout.
"""

from importlib.metadata import entry_points
from pathlib import Path

GROUP = "kakeya.models"


class BrokenModel(Exception):
    """A model is installed and its package does not say where; the message says why."""


def directory(name: str) -> Path | None:
    """Where the files of the installed model of that name are; None where none is. Raises BrokenModel."""
    for point in entry_points(group=GROUP, name=name):
        try:
            return Path(point.load()())
        except Exception as error:  # whatever another package raises
            raise BrokenModel(f"the installed model {name!r} is broken: {type(error).__name__}: {error}") from error
    return None
