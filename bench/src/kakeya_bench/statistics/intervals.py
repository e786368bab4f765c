"""How far an estimate can be trusted: SciPy's bootstrap (Efron 1979), percentile intervals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

NUM_RESAMPLES = 2_000
CONFIDENCE = 0.95

_Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the bounds of its confidence interval."""

    estimate: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the interval as a share of the estimate."""
        return (self.high - self.low) / 2 / self.estimate


@dataclass(frozen=True, slots=True)
class Cost:
    """What so many tokens took."""

    seconds: float
    num_tokens: int


def of_mean(values: Sequence[float]) -> Interval:
    """Of the mean of at least one value; the same values give the same interval."""
    return _interval((np.asarray(values, float),), np.mean)


def of_median(values: Sequence[float]) -> Interval:
    """Of the median of at least one value; the same values give the same interval."""
    return _interval((np.asarray(values, float),), np.median)


def cost_ratio(head: Sequence[Cost], tail: Sequence[Cost], *, seed: int = 0) -> Interval:
    """How much more a token costs in the tail than in the head, and the interval of that.

    Seconds in all over tokens in all, so that what a call costs by itself weighs as often as there are calls. Blocks of
    consecutive turns are resampled (Carlstein 1986): a busy moment of the machine slows several turns in a row, which
    resampling single turns would take for independent evidence.

    Args:
        head, tail: in order of time; neither is empty, and both have tokens and took time.
        seed: of the resampling; the same series give the same interval.
    """
    heads, tails = _blocks(head), _blocks(tail)

    def ratio(head_blocks: _Array, tail_blocks: _Array, axis: int = -1) -> _Array:
        return _per_token(tails, tail_blocks, axis) / _per_token(heads, head_blocks, axis)

    return _interval((np.arange(len(heads)), np.arange(len(tails))), ratio, seed)


def _blocks(series: Sequence[Cost]) -> _Array:
    """Seconds and tokens of blocks that are as long as the cube root of the series.  # [blocks, 2]"""
    costs = np.array([(cost.seconds, cost.num_tokens) for cost in series], float)
    num_blocks = -(-len(costs) // max(1, round(len(costs) ** (1 / 3))))
    return np.array([block.sum(axis=0) for block in np.array_split(costs, num_blocks)])


def _per_token(blocks: _Array, drawn: _Array, axis: int) -> _Array:
    seconds, num_tokens = blocks[drawn, 0].sum(axis=axis), blocks[drawn, 1].sum(axis=axis)
    return np.asarray(seconds / num_tokens)


def _interval(samples: tuple[_Array, ...], statistic: Callable[..., Any], seed: int = 0) -> Interval:
    estimate = float(statistic(*samples, axis=-1))
    if min(map(len, samples)) < 2:  # nothing can be drawn anew
        return Interval(estimate, estimate, estimate)
    found = stats.bootstrap(
        samples,
        statistic,
        n_resamples=NUM_RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        vectorized=True,
        rng=seed,
    ).confidence_interval
    return Interval(estimate, float(found.low), float(found.high))
