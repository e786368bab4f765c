"""How far behind a question its fact was told, and so what a window still sees of it."""

from dataclasses import dataclass

from kakeya_worker.quality.script import ANSWER_TOKENS


@dataclass(frozen=True)
class Sight:
    """Distances p - j from the last token before an answer, at history index p, to those of a telling, at j.

    Attributes:
        first: to the first token of the message that tells the fact: the distance of a question.
        last: to the last one.
    """

    first: int
    last: int

    def is_whole(self, window: int) -> bool:
        """Whether the whole telling stays in the window until the answer ends."""
        return self.first + ANSWER_TOKENS <= window

    def is_gone(self, window: int) -> bool:
        """Whether the whole telling has left the window before the answer begins."""
        return self.last >= window
