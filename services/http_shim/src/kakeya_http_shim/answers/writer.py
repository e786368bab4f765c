"""How answers are written down: the one thing in which the APIs differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kakeya_http_shim.answers.stream_events import framed
from kakeya_http_shim.choices.choice import Ended
from kakeya_http_shim.choices.opened import Opened, Spent
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
    """A whole answer.

    Attributes:
        delta: all of its pieces in one.
    """

    delta: Delta
    ended: Ended


class Writer(Protocol):
    """Writes the answer to one request as its API has it: JSON, or the framed events of a stream.

    What an answer has taken so far (`spent`) is in an event where every event is to tell it.

    Attributes:
        id_prefix: of the ids of its answers.
    """

    id_prefix: str

    @property
    def sign_of_life(self) -> bytes:
        """What a silent stream says."""
        ...

    def begin(self, heading: Heading, opened: Opened) -> bytes:
        """What a stream begins with; b"" where that is its first piece."""
        ...

    def pieces(
        self, heading: Heading, index: int, delta: Delta, *, is_first: bool, spent: Spent | None = None
    ) -> Sequence[bytes]:
        """The events of a stream that tell a piece of an answer."""
        ...

    def end(self, heading: Heading, index: int, ended: Ended, *, is_first: bool, spent: Spent | None = None) -> bytes:
        """What ends an answer; the first as well where the answer is empty."""
        ...

    def usage(self, heading: Heading, answers: Sequence[Spent]) -> bytes:
        """Behind all answers of a stream, where it was asked for."""
        ...

    def done(self) -> bytes:
        """The end of a stream."""
        ...

    def whole(self, heading: Heading, answers: Sequence[Whole]) -> bytes:
        """The answer to a request that is no stream."""
        ...


class OpenAiStream:
    """How streams of OpenAI's API begin and end, and what they say between."""

    sign_of_life = b": keep-alive\n\n"

    def begin(self, heading: Heading, opened: Opened) -> bytes:
        return b""

    def done(self) -> bytes:
        return framed(b"[DONE]")
