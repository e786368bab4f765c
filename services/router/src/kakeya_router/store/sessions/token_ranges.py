"""Ranges of a history, as a record keeps them: "0-4,100-164" are its tokens 0..3 and 100..163."""

from collections.abc import Iterable
from typing import Protocol


class TokenRange(Protocol):
    """Tokens start..end-1; each contract has a message of this shape."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


def text(ranges: Iterable[TokenRange]) -> str:
    return ",".join(f"{part.start}-{part.end}" for part in ranges)


def parse(text: str) -> list[range]:
    """The reverse of `text`."""
    return [range(*map(int, part.split("-"))) for part in text.split(",") if part]
