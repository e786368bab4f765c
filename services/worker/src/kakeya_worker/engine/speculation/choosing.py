"""How a session is going to choose its next tokens, as far as that is known before: all but what its grammar allows.

A draft is right where it is the token that is chosen. So a draft model's logits are chosen from as the target's will
be: with the same penalties and masks, and with the same draw, of the same seed at the same index. Both draws are then
one and the same random event (a Gumbel coupling: arXiv 2408.07978), and two models that agree choose the same token at
any temperature. The likeliest token would be right only as often as it is drawn.

The draw is among the likeliest ids alone: over the whole of a large vocabulary it takes as long as a small model's
forward pass.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.sampling.sampling import Counts, Sampling, choose

MOST_DRAWN_FROM = 256
"""Likeliest ids. At temperature 1 of 49,152 ids 1 ms instead of 9."""


@dataclass(frozen=True)
class Choosing:
    """Attributes:
    history_index: of the first draft.
    counts: how often the Generate has produced each id before that; looked at where there are penalties.
    ends: ids that are not chosen among the first `num_endless` drafts.
    """

    sampling: Sampling = field(default_factory=Sampling)
    history_index: int = 0
    counts: Counts = field(default_factory=dict)
    ends: frozenset[int] = frozenset()
    num_endless: int = 0

    def token(self, logits: NDArray[np.float32], drafts: Sequence[int]) -> int:
        """What the session would choose from logits [vocab] behind these drafts.

        Raises:
            FloatingPointError: as of `choose`.
        """
        sampling, counts = self.sampling, self.counts
        if sampling.has_penalties and drafts:
            counts = Counter(counts) + Counter(drafts)
        if sampling.temperature > 0.0:
            sampling = replace(sampling, top_k=min(sampling.top_k or MOST_DRAWN_FROM, MOST_DRAWN_FROM))
        masked = self.ends if self._is_endless(len(drafts)) else frozenset[int]()
        return choose(logits, sampling, self.history_index + len(drafts), counts, masked)

    def ends_with(self, drafts: Sequence[int]) -> bool:
        """Whether nothing comes behind the last of them, if it is right."""
        return drafts[-1] in self.ends and not self._is_endless(len(drafts) - 1)

    def _is_endless(self, number: int) -> bool:
        return number < self.num_endless


GREEDY = Choosing()
