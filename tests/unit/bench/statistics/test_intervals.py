"""What the interval of a ratio says of series whose true cost is known."""

import math
import random
from dataclasses import replace

import pytest

from kakeya_bench.statistics.intervals import Cost, Interval, cost_ratio, of_mean, of_median


def series(
    length: int, *, seed: object, noise: float = 0.1, correlation: float = 0.0, cost: float = 1.0, num_tokens: int = 40
) -> list[Cost]:
    """Turns of one true cost a token, each off by a share of it, of which the correlation is left in the next one."""
    draw = random.Random(f"{seed}")
    off, costs = draw.gauss(), []
    for _ in range(length):
        off = correlation * off + math.sqrt(1 - correlation**2) * draw.gauss()
        costs.append(Cost(0.006 * cost * num_tokens * (1 + noise * off), num_tokens))
    return costs


def test_the_same_series_give_the_same_interval() -> None:
    head, tail = series(50, seed="head"), series(60, seed="tail")
    found, other = cost_ratio(head, tail), cost_ratio(head, tail, seed=1)
    assert cost_ratio([*head], [*tail], seed=0) == found != other
    assert other.estimate == found.estimate
    assert other.half_width == pytest.approx(found.half_width, rel=0.1)


def test_the_estimate_is_seconds_over_tokens() -> None:
    """A long turn counts as often as it has tokens."""
    found = cost_ratio([Cost(1.0, 10), Cost(3.0, 30)], [Cost(2.0, 5), Cost(4.0, 15)])
    assert found.estimate == pytest.approx(6 / 20 / (4 / 40))
    one = cost_ratio([Cost(2.0, 4)], [Cost(3.0, 3)])
    assert (one.low, one.estimate, one.high, one.half_width) == (2.0, 2.0, 2.0, 0.0), "there is nothing to draw"


@pytest.mark.heavy
def test_of_a_hundred_equal_pairs_nearly_all_intervals_contain_one() -> None:
    """An interval half as wide contains it 67 times, one twice as wide always."""
    pairs = [(series(40, seed=f"head/{pair}", correlation=0.3), series(40, seed=f"tail/{pair}", correlation=0.3))
             for pair in range(100)]  # fmt: skip
    found = [cost_ratio(head, tail, seed=number) for number, (head, tail) in enumerate(pairs)]
    assert 86 <= sum(interval.low <= 1 <= interval.high for interval in found) <= 99


def test_turns_that_are_slow_together_are_less_evidence() -> None:
    """The same turns in another order: alone each would be as good as another."""
    draw = random.Random(0)
    head, tail = (series(200, seed=name, correlation=0.9) for name in ("head", "tail"))
    in_order = cost_ratio(head, tail)
    shuffled = cost_ratio(draw.sample(head, len(head)), draw.sample(tail, len(tail)))
    assert in_order.estimate == pytest.approx(shuffled.estimate)
    assert in_order.half_width > 1.5 * shuffled.half_width


def test_what_costs_more_or_less_is_seen_in_any_unit_of_time() -> None:
    head, tail = series(40, seed="head", noise=0.03), series(40, seed="tail", noise=0.03, cost=1.2)
    more, less = cost_ratio(head, tail), cost_ratio(tail, head)
    assert 1.05 < more.low < 1.2 < more.high < 1.3
    assert less.high < 0.95
    slower = [replace(cost, seconds=cost.seconds * 1e6) for cost in tail]
    assert cost_ratio(head, slower).half_width == pytest.approx(more.half_width, rel=1e-9)


def test_noise_of_head_or_tail_makes_the_interval_wide() -> None:
    calm, noisy = series(40, seed="calm", noise=0.0), series(40, seed="noisy", noise=0.2)
    assert min(cost_ratio(calm, noisy).half_width, cost_ratio(noisy, calm).half_width) > 0.04
    assert cost_ratio(calm, calm).half_width < 1e-9
    assert Interval(estimate=2.0, low=1.5, high=2.7).half_width == pytest.approx(0.3)


def test_means_and_medians_have_intervals() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 100.0]
    for found, estimate in ((of_mean(values), 22.0), (of_median(values), 3.0)):
        assert found.estimate == estimate
        assert 1.0 <= found.low < estimate < found.high <= 100.0
