"""Tags of places of histories, as prelude/tags.lua keeps them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from kakeya_router.store.session_record import SessionId

_PLACE = re.compile(r"([a-z]+)\|(\d+)")
_TAG = re.compile(r"(\d+):([0-9a-f]+)")


class PlaceKind(StrEnum):
    """Of a place; `kakeya.v1.PlaceKind`."""

    HEAD = "head"
    START = "start"
    END = "end"


@dataclass(frozen=True, slots=True)
class HistoryPlace:
    """A place of a history: the tokens before it are `length`."""

    kind: PlaceKind
    length: int


@dataclass(frozen=True, slots=True)
class Entry:
    """What the index says: a session has had a tag at a place since a time, in microseconds by Redis' clock."""

    session_id: SessionId
    place: HistoryPlace
    at_us: int

    @classmethod
    def of(cls, text: str) -> Self:
        _, at_us, kind, length, session_id = text.split("|")
        return cls(SessionId(session_id), HistoryPlace(PlaceKind(kind), int(length)), int(at_us))


def places(held: Mapping[str, str]) -> Iterable[HistoryPlace]:
    """Those that a session's hash of tags names."""
    found = map(_PLACE.fullmatch, held)
    return (HistoryPlace(PlaceKind(match[1]), int(match[2])) for match in found if match)


def named(held: Mapping[str, str]) -> dict[str, HistoryPlace]:
    """The place of each tag in a session's hash of tags; of several the deepest."""
    found = sorted(places(held), key=lambda place: place.length)
    return {tag: place for place in found for _, tag in _TAG.findall(held[f"{place.kind.value}|{place.length}"])}


def removals(session_id: SessionId, held: Mapping[str, str]) -> list[Sequence[str]]:
    """Commands that take a session's tags out of the index; `held` is its hash of tags."""
    entries = [
        f"{tag}|{at_us}|{place}|{session_id}"
        for place, text in held.items()
        if _PLACE.fullmatch(place)
        for at_us, tag in _TAG.findall(text)
    ]
    return [("ZREM", held["index"], *entries)] if entries else []
