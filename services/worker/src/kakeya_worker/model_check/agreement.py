"""Two models' logits over one text, side by side."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, sink_window
from kakeya_worker.engine.seams.verifier import Verifier

Floats = NDArray[np.float32]
CHUNK: Final = 32
_SINK: Final = 4


@dataclass
class Agreement:
    """Sums over positions, of which each has the logits after one token of the text.

    Attributes:
        num_positions: so far.
        max_kl: the largest divergence at one position, in nats; infinite where a logit is not finite.
    """

    num_positions: int = 0
    max_kl: float = 0.0
    _sum_kl: float = 0.0
    _num_equal: int = 0
    _surprises: list[float] = field(default_factory=lambda: [0.0, 0.0])
    _num_followed: int = 0

    def add(self, logits: Floats, reference: Floats, following: Sequence[int]) -> None:
        """More positions.

        Args:
            logits, reference: [positions, vocab].
            following: the tokens that the text has next, [positions]; one fewer at its end.
        """
        of_model, of_reference = _log_softmax(logits), _log_softmax(reference)
        kl = (np.exp(of_reference) * (of_reference - of_model)).sum(-1)  # [positions]
        kl = np.where(np.isfinite(kl), kl, math.inf)
        self.num_positions += len(kl)
        self._sum_kl += float(kl.sum())
        self.max_kl = max(self.max_kl, float(kl.max()))
        self._num_equal += int((logits.argmax(-1) == reference.argmax(-1)).sum())
        at = np.arange(len(following)), np.asarray(following, dtype=np.int64)
        self._num_followed += len(following)
        for number, log_probabilities in enumerate((of_model, of_reference)):
            self._surprises[number] -= float(log_probabilities[at].sum())

    @property
    def mean_kl(self) -> float:
        """The Kullback-Leibler divergence from the reference, in nats."""
        return self._sum_kl / self.num_positions

    @property
    def top1(self) -> float:
        """The share of positions at which both find the same token most likely."""
        return self._num_equal / self.num_positions

    @property
    def perplexities(self) -> tuple[float, float]:
        """Of the text, to the model and to the reference."""
        model, reference = (surprise / max(self._num_followed, 1) for surprise in self._surprises)
        return _exp(model), _exp(reference)


def scored(verifier: Verifier, token_ids: Sequence[int]) -> Iterator[Floats]:
    """The logits after each token of a text, some at a time: [tokens, vocab]. The slab is allocated for it."""
    geometry = LaneGeometry(_SINK, len(token_ids), CHUNK)
    verifier.allocate(geometry, 1)
    lane = Lane(geometry, 0, sink_window(SessionOptions(), geometry))
    for start in range(0, len(token_ids), CHUNK):
        row = replace(lane.row(tuple(token_ids[start : start + CHUNK])), is_scored=True)
        verifier.forward([row])
        yield verifier.scored_logits([0])
        lane.commit(row)


def most_tokens(max_positions: int) -> int:
    """That a lane of a model can hold at once."""
    return max_positions - _SINK


def _log_softmax(logits: Floats) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):  # of what is not finite; it is told by `max_kl`
        shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
        normalized: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return normalized


def _exp(nats: float) -> float:
    return math.exp(nats) if nats < 700 else math.inf
