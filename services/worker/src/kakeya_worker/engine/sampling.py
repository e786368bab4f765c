"""Chooses a token from raw logits: temperature, top_k, top_p, draw.

The draw is Gumbel-max (Gumbel 1954; see arXiv 1611.01144, section 2) in float64 over the surviving ids with
u = Philox(seed; history index, token id): it needs no normalizing sum, so it depends on nothing but the
logits, the parameters and the index.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.philox import uniforms

# -log(-log(u)) lies in [-3.62, 36.74] for the 52-bit u of `uniforms`.
_GUMBEL_RANGE = 40.5


@dataclass(frozen=True)
class Sampling:
    """How to choose.

    Attributes:
        seed: of the draw, 64 bits.
        temperature: 0 is greedy.
        top_p: survivors are the fewest most likely ids whose mass reaches it; 1 keeps all.
        top_k: survivors are the most likely ids; 0 keeps all.
    """

    seed: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0


def choose(logits: NDArray[np.float32], sampling: Sampling, history_index: int) -> int:
    """The token at `history_index`, from the logits [vocab] of the token before it. Ties: the lower id.

    Raises:
        FloatingPointError: the largest logit is not a finite number.
    """
    best = int(np.argmax(logits))
    if not np.isfinite(logits[best]):
        raise FloatingPointError(f"the logits at history index {history_index} are not finite")
    if sampling.temperature == 0.0:
        return best
    scores = logits.astype(np.float64) / sampling.temperature
    survivors = _top_p(scores, _top_k(scores, sampling.top_k), sampling.top_p)
    survivors = survivors[scores[survivors] >= scores[best] - _GUMBEL_RANGE]  # the others cannot win any draw
    gumbel = -np.log(-np.log(uniforms(sampling.seed, history_index, survivors)))
    return int(survivors[np.argmax(scores[survivors] + gumbel)])


def _top_k(scores: NDArray[np.float64], top_k: int) -> NDArray[np.int64]:
    """The ids of the `top_k` highest scores, ascending."""
    if top_k == 0 or top_k >= scores.size:
        return np.arange(scores.size)
    least = np.partition(scores, -top_k)[-top_k]
    above = np.flatnonzero(scores > least)
    ties = np.flatnonzero(scores == least)[: top_k - above.size]
    return np.sort(np.concatenate([above, ties]))


def _top_p(scores: NDArray[np.float64], ids: NDArray[np.int64], top_p: float) -> NDArray[np.int64]:
    """The fewest of `ids` whose mass, summed in descending order, reaches `top_p`; ascending."""
    if top_p >= 1.0:
        return ids
    descending = ids[np.argsort(-scores[ids], kind="stable")]
    mass = np.cumsum(np.exp(scores[descending] - scores[descending[0]]))
    num_kept = int(np.searchsorted(mass, top_p * mass[-1])) + 1
    return np.sort(descending[:num_kept])
