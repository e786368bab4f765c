"""Which turns of a conversation can still be seen."""

from dataclasses import dataclass, field
from typing import NamedTuple


class _Said(NamedTuple):
    """A turn in words, and as indices into the history: the first after what is pinned, and the one after the last."""

    text: str
    start: int
    end: int


@dataclass
class Sight:
    """What was said in a session so far.

    Attributes:
        sink: tokens from the first on that are seen for ever.
        num_pinned: those of them that stand before the first turn.
    """

    sink: int
    num_pinned: int
    _said: list[_Said] = field(default_factory=list, init=False)

    def add(self, text: str, start: int, end: int) -> None:
        """A turn, and between which lengths of the history it was held."""
        self._said.append(_Said(text, max(start, self.num_pinned), end))

    def sees(self, words: str, num_forgotten_tokens: int | None) -> bool:
        """Whether a turn with these words can still be seen, whole or in part; True where that is not known.

        Args:
            num_forgotten_tokens: those that follow the sinks.
        """
        if num_forgotten_tokens is None:
            return True
        told = [said for said in self._said if words in said.text]
        return any(said.start < self.sink or said.end > self.sink + num_forgotten_tokens for said in told)
