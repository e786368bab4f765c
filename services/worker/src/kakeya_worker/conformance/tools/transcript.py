"""A conversation whose logits are hashed: two of them are the same to the bit, or their transcripts differ."""

import hashlib
from collections.abc import Sequence
from typing import Protocol

from kakeya_worker.conformance.tools.checkpoints import Variant
from kakeya_worker.conformance.tools.driving import Logits
from kakeya_worker.engine.sampling.sampling import Sampling, choose

SINK, WINDOW = 5, 27  # neither a multiple of the 16 keys that are summed together
MAX_POSITIONS = 176
HISTORIES = {"inside": 14, "at": 32, "5-times": 160, "beyond-max-positions": 190}
"""History lengths, against S + W and max_position_embeddings, from which tokens are generated."""
NUM_GENERATED = 12
"""Tokens at each, the first half greedily, the others drawn."""

Transcript = dict[str, str]
"""SHA-256 of the logits (little-endian float32) that each token was chosen from, by name of the history."""

_GREEDY, _DRAWN = Sampling(), Sampling(seed=20, temperature=1.0, top_p=0.95)


class Conversation(Protocol):
    """One session of SINK and WINDOW."""

    def extend(self, token_ids: Sequence[int]) -> None:
        """Appends tokens."""
        ...

    def logits(self) -> Logits:
        """After the last token; [vocab]."""
        ...


def transcript(conversation: Conversation, variant: Variant) -> Transcript:
    """Holds the conversation: at each history so many tokens are generated, the rest are the variant's."""
    told = variant.history(max(HISTORIES.values()))
    digests, length = {}, 0
    for name, history in HISTORIES.items():
        conversation.extend(told[length:history])
        digests[name] = _generate(conversation, history)
        length = history + NUM_GENERATED
    return digests


def _generate(conversation: Conversation, start: int) -> str:
    digest = hashlib.sha256()
    for number in range(NUM_GENERATED):
        logits = conversation.logits()
        digest.update(logits.astype("<f4").tobytes())
        sampling = _GREEDY if number < NUM_GENERATED // 2 else _DRAWN
        conversation.extend([choose(logits, sampling, start + number)])
    return digest.hexdigest()
