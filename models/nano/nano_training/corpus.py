"""Conversations as token ids, each with the weight that its prediction has in the loss."""

from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from nano_training.dialogues.conversation import Conversation
from nano_training.dialogues.message import Piece, written

PROMPT_WEIGHT: Final = 0.1
"""What users write is mostly chance; the model learns its form from a tenth of the weight of an answer."""

THOUGHT_WEIGHT: Final = 2.0
"""Of answers that have to be found or worked out: few of the answers' tokens, and learnt last."""

THOUGHT_KINDS: Final = ("recall", "unknown", "arithmetic", "edit")

_SHORT_CHARACTERS: Final = 32

Ids = NDArray[np.int64]
Weights = NDArray[np.float32]


def seeded(seed: int, split: str, index: int) -> Random:
    """The randomness of one conversation; no split shares any with another."""
    return Random(f"{seed}/{split}/{index}")


def text_of(random: Random, num_exchanges: int) -> str:
    """The start of a conversation as it is written."""
    exchanges = islice(Conversation(random).exchanges(), num_exchanges)
    return "".join(piece.text for exchange in exchanges for piece in written(exchange.messages))


@dataclass(frozen=True)
class Span:
    """An answer in a sequence.

    Attributes:
        kind: of its exchange.
        start: of its first token.
        end: after its end of turn.
        distance: tokens since the fact that it recalls was last told or repeated; None where it recalls none.
    """

    kind: str
    start: int
    end: int
    distance: int | None = None


@dataclass(frozen=True)
class Sequence:
    """One conversation, cut after so many tokens.

    Attributes:
        ids: [tokens].
        weights: of each token in the loss; [tokens].
        answers: those that are not cut off.
    """

    ids: Ids
    weights: Weights
    answers: list[Span]


class Encoder:
    """Tokenizes pieces; remembers the short ones, which come again and again."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, list[int]] = {}

    def __call__(self, text: str) -> list[int]:
        ids = self._known.get(text)
        if ids is None:
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids
            if len(text) < _SHORT_CHARACTERS:
                self._known[text] = ids
        return ids


def sequence(random: Random, encode: Encoder, num_tokens: int) -> Sequence:
    """Draws a conversation of that length."""
    ids: list[int] = []
    weights: list[float] = []
    answers: list[Span] = []
    last_seen: dict[str, int] = {}
    for exchange in Conversation(random).exchanges():
        for piece in written(exchange.messages):
            tokens = encode(piece.text)
            if piece.is_answer:
                distance = len(ids) - last_seen[exchange.asked] if exchange.asked else None
                answers.append(Span(exchange.kind, len(ids), len(ids) + len(tokens), distance))
            ids += tokens
            weights += [_weight(exchange.kind, piece)] * len(tokens)
        last_seen |= dict.fromkeys([*exchange.told, *([exchange.asked] if exchange.asked else [])], len(ids))
        if len(ids) >= num_tokens:
            break
    whole = [answer for answer in answers if answer.end <= num_tokens]
    return Sequence(np.array(ids[:num_tokens], np.int64), np.array(weights[:num_tokens], np.float32), whole)


def _weight(kind: str, piece: Piece) -> float:
    if not piece.is_answer:
        return PROMPT_WEIGHT
    return THOUGHT_WEIGHT if kind in THOUGHT_KINDS else 1.0
