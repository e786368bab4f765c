"""A script: what one session is fed, step by step, decided by what the model says to it.

A script is a generator: it yields what to feed, is sent the logits after it, and returns what it found.
"""

from collections.abc import Collection, Generator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from kakeya_bench.quality.plan import ANSWER_TOKENS

Tokens = tuple[int, ...]
Logits = NDArray[np.float32]  # [vocab]
T = TypeVar("T")


@dataclass(frozen=True)
class Feed:
    """Tokens for a session, at least one.

    Attributes:
        start: the history length at which they follow; what stands there already is taken back, at most a chunk of
            it. None for the end.
        wants_logits: those after the last token; else none are sent.
    """

    tokens: Tokens
    start: int | None = None
    wants_logits: bool = True


Script = Generator[Feed, Logits, T]


@dataclass(frozen=True)
class Outcome:
    """Whether a fact was recalled.

    Attributes:
        target: the distance that was asked for; 0 where it is as it comes.
        first: the distance that it was: p - j, from the last token before the answer, at history index p, to the first
            token of the message that tells the fact, at j.
        last: to the last token of that message.
        said: the whole answer.
    """

    target: int
    first: int
    last: int
    recalled: bool
    said: Tokens

    def is_in_sight(self, window: int) -> bool:
        """Whether the whole telling stays in the window until the answer ends."""
        return self.first + ANSWER_TOKENS <= window

    def is_out_of_sight(self, window: int) -> bool:
        """Whether the whole telling has left the window before the answer begins."""
        return self.last >= window


def answer(
    question: Tokens, eos_token_ids: Collection[int], *, start: int | None = None, most: int = ANSWER_TOKENS
) -> Script[Tokens]:
    """Asks, and returns the greedy answer, its end included where it came; its last token is not fed."""
    logits = yield Feed(question, start)
    tokens: list[int] = []
    while True:
        tokens.append(int(logits.argmax()))
        if tokens[-1] in eos_token_ids or len(tokens) == most:
            return tuple(tokens)
        logits = yield Feed((tokens[-1],))
