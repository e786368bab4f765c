"""What a worker has committed of a session."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LaneState:
    """A lane as its worker last said.

    Attributes:
        retained: the part of the history that is kept: "0-4,100-164" are its tokens 0..3 and 100..163.
        num_rewinds: how often the lane was taken back.
        history_digest: of what it holds; None: not known.
    """

    history_length: int = 0
    kv_live_bytes: int = 0
    retained: str = ""
    num_rewinds: int = 0
    history_digest: int | None = None

    @property
    def num_dropped_tokens(self) -> int:
        """Tokens of the history that are not kept."""
        return self.history_length - sum(map(len, ranges(self.retained)))


def ranges(retained: str) -> list[range]:
    """The ranges of a history that a text names."""
    return [range(*map(int, part.split("-"))) for part in retained.split(",") if part]


def text(ranges: Iterable[range]) -> str:
    """The reverse of `ranges`."""
    return ",".join(f"{part.start}-{part.stop}" for part in ranges)
