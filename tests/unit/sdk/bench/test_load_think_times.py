"""How long the users of `kakeya bench load` think."""

import math

from kakeya.bench.load.think_times import ThinkTimes
from kakeya.bench.percentile import mean, median


def times(num: int, *, mean_seconds: float = 2.0, seed: int = 0, conversation: int = 0) -> list[float]:
    thoughts = ThinkTimes(mean_seconds, seed=seed, conversation=conversation)
    return [thoughts.next_seconds() for _ in range(num)]


def test_the_same_seed_gives_the_same_times() -> None:
    assert times(50) == times(50)


def test_another_seed_or_conversation_gives_others() -> None:
    assert len({tuple(times(5)), tuple(times(5, seed=1)), tuple(times(5, conversation=1))}) == 3


def test_they_are_exponential() -> None:
    drawn = times(20_000)
    assert min(drawn) > 0
    assert abs(mean(drawn) - 2.0) < 0.06
    assert abs(median(drawn) - 2.0 * math.log(2)) < 0.06
    assert abs(sum(value > 4.0 for value in drawn) / len(drawn) - math.exp(-2)) < 0.01


def test_they_scale_with_the_mean() -> None:
    assert all(math.isclose(long, 3 * short) for short, long in zip(times(9), times(9, mean_seconds=6.0), strict=True))


def test_who_does_not_think_goes_on_at_once() -> None:
    assert times(3, mean_seconds=0.0) == [0.0, 0.0, 0.0]
