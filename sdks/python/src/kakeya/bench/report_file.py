"""Files of a report, whole or not there at all."""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any


class NotWritable(Exception):
    """A report's directory cannot be written to."""


def prepare(directory: Path) -> None:
    """Makes the directory. Raises NotWritable."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotWritable(f"{directory}: {error.strerror}") from error


def write_json(path: Path, document: Mapping[str, object]) -> None:
    """As `write`. Values that JSON has no word for are a mistake: ValueError."""
    write(path, (json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n").encode())


def write_all(
    path: Path, document: Mapping[str, Any], draw: Callable[[Mapping[str, Any]], Mapping[str, bytes]]
) -> None:
    """The JSON document, then what is drawn from it, beside it: what was measured is kept, whatever becomes of that.

    Args:
        draw: makes the other files, by name.

    Raises:
        NotWritable
    """
    write_json(path, document)
    for name, content in draw(document).items():
        write(path.with_name(name), content)


def write(path: Path, content: bytes) -> None:
    """Puts the content in place of what is there, in one step, so that whoever reads finds the old or the new.

    It is on disk before it is in its place: neither kill -9 nor a power cut leaves half a file.

    Raises:
        NotWritable: the disk is full, or the directory is not there any more.
    """
    part = path.with_name(f".{path.name}.part")  # one that kill -9 left is written over
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        with suppress(OSError):  # where its directory is none, it is not there either
            part.unlink()
        raise NotWritable(f"{path}: {error.strerror}") from error


def _sync_directory(directory: Path) -> None:
    """So that the new name outlives a power cut, too."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
