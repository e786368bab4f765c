"""Whether greedy decoding would write each answer of held-out conversations, from one forward pass.

Where every token of an answer is the likeliest one after those before it, greedy decoding writes that answer.
Kinds of answers that leave a choice (small talk, `name three fruits`) can't be judged so.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

import torch
from tokenizers import Tokenizer

from nano_training.corpus import Encoder, Sequence, seeded, sequence
from nano_training.shape import MAX_POSITIONS

DISTANCES: Final = (64, 128, 256, 512, 1024)
BATCH_SEQUENCES: Final = 8


@dataclass
class Share:
    """Answers, and how many of them would be written."""

    num: int = 0
    num_right: int = 0

    def add(self, is_right: bool) -> None:
        self.num += 1
        self.num_right += is_right

    def __str__(self) -> str:
        return f"{100 * self.num_right / self.num:.1f} % of {self.num}"


@torch.no_grad()
def agreement(model: Any, tokenizer: Tokenizer, *, seed: int, num_sequences: int) -> dict[str, Share]:
    """Shares by kind; those of recall also by distance, up to the figure that is named."""
    encode = Encoder(tokenizer)
    shares: dict[str, Share] = defaultdict(Share)
    for start in range(0, num_sequences, BATCH_SEQUENCES):
        drawn = [
            sequence(seeded(seed, "held out", index), encode, MAX_POSITIONS)
            for index in range(start, min(start + BATCH_SEQUENCES, num_sequences))
        ]
        ids = torch.stack([torch.from_numpy(each.ids) for each in drawn])
        right = model(input_ids=ids[:, :-1]).logits.argmax(-1) == ids[:, 1:]  # [sequences, tokens - 1]
        for each, row in zip(drawn, right, strict=True):
            _judge(each, row.tolist(), shares)
    return dict(sorted(shares.items()))


def _judge(drawn: Sequence, right: list[bool], shares: dict[str, Share]) -> None:
    for answer in drawn.answers:
        is_right = all(right[answer.start - 1 : answer.end - 1])
        shares[answer.kind].add(is_right)
        if answer.distance is not None:
            shares[f"recall to {bucket_of(answer.distance):4}"].add(is_right)


def bucket_of(distance: int) -> int:
    """The end of the range of distances that it falls into; in tokens."""
    return next(end for end in DISTANCES if distance <= end)
