"""A script: what one session is fed, step by step, decided by what the model says to it.

A script is a generator: it yields what to feed, is sent the logits after it, and returns what it found.
"""

from collections.abc import Collection, Generator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.quality.chat_template import Tokens

ANSWER_TOKENS = 32
"""The most tokens of an answer; a value stands within the first dozen of one that holds it at all."""

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
