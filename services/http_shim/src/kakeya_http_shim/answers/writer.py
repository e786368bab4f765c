"""How answers are written down: the one thing in which the two APIs differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kakeya_http_shim.choices.choice import Ended, Spent
from kakeya_http_shim.text.delta import Delta


@dataclass(frozen=True)
class Heading:
    """What every object of an answer begins with.

    Attributes:
        created: Unix time in seconds.
        system_fingerprint: of the numerics that the answer depends on.
    """

    id: str
    created: int
    model: str
    system_fingerprint: str


@dataclass(frozen=True)
class Whole:
    """A whole answer."""

    delta: Delta
    ended: Ended


class Writer(Protocol):
    """Writes the JSON of one API.

    What an answer has taken so far (`spent`) is in an event where every event is to tell it.
    """

    id_prefix: str

    def pieces(
        self, heading: Heading, index: int, delta: Delta, *, is_first: bool, spent: Spent | None = None
    ) -> Sequence[bytes]:
        """The events of a stream that tell a piece of an answer: one at least."""
        ...

    def end(self, heading: Heading, index: int, ended: Ended, *, is_first: bool, spent: Spent | None = None) -> bytes:
        """The event that ends an answer; the first as well where the answer is empty."""
        ...

    def usage(self, heading: Heading, answers: Sequence[Spent]) -> bytes:
        """The last event of a stream, where it was asked for."""
        ...

    def whole(self, heading: Heading, answers: Sequence[Whole]) -> bytes:
        """The answer to a request that is no stream."""
        ...
