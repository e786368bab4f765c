"""How far logits are from the law, in units of what is tolerated: 1 is the most that is right."""

import numpy as np

from kakeya_worker.conformance.tools.driving import Logits
from kakeya_worker.conformance.tools.reference import Array

_FLOAT32_ERROR = 1e-4  # of the largest logit
_BFLOAT16_DIVERGENCE = 1e-3  # nats, at each position
_BFLOAT16_MARGIN = 0.1  # between the two largest logits; where it is wider, the choice is the same
EXACT_MEAN_DIVERGENCE = 0.005  # nats; quantized weights are another model, but near this one


def deviation(tolerance: str, logits: Logits, expected: Array) -> float:
    """Of one position in a float mode; [vocab], [vocab]. Infinite where a logit is not finite."""
    if not np.isfinite(logits).all():
        return np.inf
    if tolerance == "float32":
        return float(np.abs(logits - expected).max() / np.abs(expected).max()) / _FLOAT32_ERROR
    second, first = np.sort(expected)[-2:]
    if first - second > _BFLOAT16_MARGIN and np.argmax(logits) != np.argmax(expected):
        return np.inf
    return divergence(logits, expected) / _BFLOAT16_DIVERGENCE


def agree(tolerance: str, logits: Logits, others: Logits) -> bool:
    """Whether two ways to the same logits of one mode led to the same, as far as the mode promises."""
    if tolerance == "exact":
        return logits.tobytes() == others.tobytes()
    return deviation(tolerance, logits, others.astype(np.float64)) <= 1


def divergence(logits: Logits, expected: Array) -> float:
    """The Kullback-Leibler divergence from what is expected, in nats; [vocab], [vocab]."""
    p, q = _log_softmax(expected), _log_softmax(logits.astype(np.float64))
    return float((np.exp(p) * (p - q)).sum())


def _log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max()
    normalized: Array = shifted - np.log(np.exp(shifted).sum())
    return normalized
