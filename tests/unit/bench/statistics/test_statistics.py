"""What is kept of many measurements, and what intervals say of series whose truth is known."""

import math
import random
from dataclasses import replace

import pytest

from kakeya_bench.statistics.distribution import SHARES, distribution, extent, median, percentile
from kakeya_bench.statistics.intervals import Cost, Interval, cost_ratio, of_mean, of_median
from kakeya_bench.statistics.share import NONE, Share


def test_what_is_known_of_values_in_any_order() -> None:
    values = [float(value) for value in (4, None, 100, 1, None, 3, 2, 0) if value is not None]
    assert distribution([None, *values, None]) == {
        "min": 0.0,
        "mean": pytest.approx(110 / 6),
        "max": 100.0,
        "p50": 2.5,
        "p90": 52.0,
        "p95": 76.0,
        "p99": pytest.approx(95.2),
    }
    assert extent([3, None, 1]) == {"min": 1, "mean": 2.0, "max": 3}
    assert (median(iter([4, 1, 3, 2])), percentile([1.0, 2.0], 75)) == (2.5, 1.75)
    assert {f"p{share}": share for share in (50, 90, 95, 99)} == SHARES


def test_there_are_no_figures_of_nothing() -> None:
    assert distribution([None]) is None
    assert extent([None]) is None


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
    pairs = [
        (series(40, seed=f"head/{pair}", correlation=0.3), series(40, seed=f"tail/{pair}", correlation=0.3))
        for pair in range(100)
    ]
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


@pytest.mark.parametrize(
    ("hits", "num", "low", "high"),
    [(8, 10, 0.490162, 0.943318), (0, 10, 0.0, 0.277533), (10, 10, 0.722467, 1.0), (0, 0, 0.0, 1.0)],
)  # of R's binom::binom.wilson
def test_intervals_are_wilsons(hits: int, num: int, low: float, high: float) -> None:
    assert Share(hits, num).interval == pytest.approx((low, high), abs=1e-6)
    assert Share(hits, num).document() == {
        "hits": hits,
        "num": num,
        "share": hits / num if num else None,
        "low": pytest.approx(low, abs=1e-6),
        "high": pytest.approx(high, abs=1e-6),
    }


def test_shares_add_up_and_are_told() -> None:
    assert Share.of([True, False, True]) + Share(1, 1) == Share(3, 4)
    assert NONE.value is None
    assert str(NONE) == "-"
    assert str(Share(1, 2)) == "50.0% (9.5% to 90.5%, n = 2)"
