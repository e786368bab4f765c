"""Files of a report, whole or not there at all."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kakeya_shared.process.whole_file import replacing


class NotWritable(Exception):
    """A report's directory cannot be written to."""


def prepare(directory: Path) -> None:
    """Makes the directory, so that nothing is measured for nothing. Raises NotWritable."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with replacing(directory / ".writable") as file:
            file.touch()
        (directory / ".writable").unlink()
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
    """Puts the content in place of what is there, in one step, synced.

    Raises:
        NotWritable: the disk is full, or something else is in the directory's place.
    """
    try:
        with replacing(path) as part:
            part.write_bytes(content)
    except OSError as error:
        raise NotWritable(f"{path}: {error.strerror}") from error
