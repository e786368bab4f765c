"""How far a ratio of two series can be trusted."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from kakeya.bench.percentile import percentile

NUM_RESAMPLES = 2_000
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Cost:
    """What so many tokens took."""

    seconds: float
    num_tokens: int


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


def cost_ratio(head: Sequence[Cost], tail: Sequence[Cost], *, seed: int = 0) -> Interval:
    """How much more a token costs in the tail than in the head, and the interval of that.

    Seconds in all over tokens in all, so that what a call costs by itself weighs as often as there are calls. The
    interval is the percentile bootstrap's (Efron 1979) over circular blocks of consecutive turns (Politis and Romano
    1992): a busy moment of the machine slows several turns in a row, which resampling single turns would take for
    independent evidence.

    Args:
        head, tail: in order of time; neither is empty, and both have tokens and took time.
        seed: of the resampling; the same series give the same interval.
    """
    draw = random.Random(seed)
    heads, tails = _Blocks(head), _Blocks(tail)
    ratios = sorted(tails.resample(draw) / heads.resample(draw) for _ in range(NUM_RESAMPLES))
    margin = (1 - CONFIDENCE) / 2
    return Interval(
        estimate=_per_token(tail) / _per_token(head),
        low=percentile(ratios, margin),
        high=percentile(ratios, 1 - margin),
    )


class _Blocks:
    """A series on a circle, cut into blocks of the cube root of its length."""

    def __init__(self, series: Sequence[Cost]) -> None:
        self._length = len(series)
        self._block = max(1, round(len(series) ** (1 / 3)))
        circle = [*series, *series[: self._block]]
        self._seconds = list(accumulate((cost.seconds for cost in circle), initial=0.0))
        self._tokens = list(accumulate((cost.num_tokens for cost in circle), initial=0))

    def resample(self, draw: random.Random) -> float:
        """Seconds a token of as many blocks as the series has, drawn with replacement."""
        seconds, num_tokens = 0.0, 0
        for _ in range(-(-self._length // self._block)):
            start = int(draw.random() * self._length)
            end = start + self._block
            seconds += self._seconds[end] - self._seconds[start]
            num_tokens += self._tokens[end] - self._tokens[start]
        return seconds / num_tokens


def _per_token(series: Sequence[Cost]) -> float:
    return sum(cost.seconds for cost in series) / sum(cost.num_tokens for cost in series)
