"""The snapshots of a session as its record lists them."""

import json
from dataclasses import astuple, dataclass, field

# Fields of a snapshot in a record.
_NUM_KEPT = 4


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A file in the snapshot store that was verified; it holds the session at `length`.

    Attributes:
        history_digest: of one that was just written, of all it holds; a record does not keep it.
    """

    name: str
    start: int
    length: int
    size_bytes: int
    history_digest: int | None = field(default=None, compare=False)


Snapshots = tuple[StoredSnapshot, ...]
"""Ascending by length."""


def text(snapshots: Snapshots) -> str:
    """As a session record keeps them; empty for none."""
    return json.dumps([astuple(each)[:_NUM_KEPT] for each in snapshots], separators=(",", ":")) if snapshots else ""


def parse(text: str) -> Snapshots:
    """The reverse of `text`."""
    return tuple(StoredSnapshot(*fields) for fields in json.loads(text)) if text else ()
