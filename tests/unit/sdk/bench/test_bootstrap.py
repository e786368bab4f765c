"""That the interval of a ratio holds what it promises: against series whose true cost is known."""

import math
import random
from dataclasses import replace

import pytest

from kakeya.bench.bootstrap import CONFIDENCE, Cost, Interval, cost_ratio

STANDARD_DEVIATIONS = 1.96
"""That lie within CONFIDENCE of a normal distribution, to each side."""


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


def scaled(costs: list[Cost], factor: float) -> list[Cost]:
    return [replace(cost, seconds=cost.seconds * factor) for cost in costs]


def test_the_same_series_give_the_same_interval() -> None:
    head, tail = series(50, seed="head"), series(60, seed="tail")
    found = cost_ratio(head, tail)
    assert cost_ratio(list(head), list(tail)) == found
    assert cost_ratio(head, tail, seed=0) == found
    other = cost_ratio(head, tail, seed=1)
    assert other != found
    assert other.estimate == found.estimate
    assert other.half_width == pytest.approx(found.half_width, rel=0.1)


def test_the_estimate_is_seconds_over_tokens() -> None:
    """A long turn counts as often as it has tokens."""
    head = [Cost(1.0, 10), Cost(3.0, 30)]
    tail = [Cost(2.0, 5), Cost(4.0, 15)]
    assert cost_ratio(head, tail).estimate == pytest.approx(6 / 20 / (4 / 40))


def test_the_interval_contains_the_estimate() -> None:
    for seed in range(20):
        length = 2 + 3 * seed
        found = cost_ratio(series(length, seed=seed), series(length, seed=-seed - 1, noise=0.3), seed=seed)
        assert found.low <= found.estimate <= found.high
        assert found.low < found.high


@pytest.mark.heavy
def test_of_a_hundred_equal_pairs_nearly_all_intervals_contain_one() -> None:
    """An interval half as wide contains it 67 times, one twice as wide always."""

    def drawn(name: str) -> list[Cost]:
        return series(40, seed=name, correlation=0.3)

    found = [cost_ratio(drawn(f"head/{pair}"), drawn(f"tail/{pair}"), seed=pair) for pair in range(100)]
    num_right = sum(interval.low <= 1 <= interval.high for interval in found)
    assert 86 <= num_right <= 99


def test_the_width_is_that_of_the_noise() -> None:
    """Of independent turns of equal length, the ratio of two means has a known standard deviation."""
    noise, length = 0.05, 120
    expected = STANDARD_DEVIATIONS * noise * math.sqrt(2 / length)

    def drawn(name: str) -> list[Cost]:
        return series(length, seed=name, noise=noise)

    widths = [cost_ratio(drawn(f"head/{pair}"), drawn(f"tail/{pair}")).half_width for pair in range(8)]
    assert sum(widths) / len(widths) == pytest.approx(expected, rel=0.12)
    assert CONFIDENCE == 0.95


def test_turns_that_are_slow_together_are_less_evidence() -> None:
    """The same turns in another order: alone each would be as good as another."""
    draw = random.Random(0)
    head, tail = (series(200, seed=name, correlation=0.9) for name in ("head", "tail"))
    in_order = cost_ratio(head, tail)
    shuffled = cost_ratio(draw.sample(head, len(head)), draw.sample(tail, len(tail)))
    assert in_order.estimate == pytest.approx(shuffled.estimate)
    assert in_order.half_width > 1.5 * shuffled.half_width


def test_what_costs_a_fifth_more_is_seen() -> None:
    found = cost_ratio(series(40, seed="head", noise=0.03), series(40, seed="tail", noise=0.03, cost=1.2))
    assert 1.05 < found.low < 1.2 < found.high < 1.3


def test_what_costs_less_is_seen() -> None:
    found = cost_ratio(series(40, seed="head", noise=0.03), series(40, seed="tail", noise=0.03, cost=0.8))
    assert found.high < 0.95


def test_head_and_tail_are_not_exchanged() -> None:
    """Noise of the head alone, and of the tail alone, makes the interval wide."""
    calm, noisy = series(40, seed="calm", noise=0.0), series(40, seed="noisy", noise=0.2)
    for head, tail in ((calm, noisy), (noisy, calm)):
        assert cost_ratio(head, tail).half_width > 0.04
    assert cost_ratio(calm, calm).half_width < 1e-9


@pytest.mark.parametrize(("num_heads", "num_tails"), [(1, 1), (1, 2), (2, 1), (2, 2), (3, 50), (50, 3)])
def test_short_series(num_heads: int, num_tails: int) -> None:
    """They have an interval, which tells what one turn more or less would have changed."""
    head, tail = series(num_heads, seed="head"), series(num_tails, seed="tail")
    found = cost_ratio(head, tail)
    assert found.low <= found.estimate <= found.high
    per_token = [[cost.seconds / cost.num_tokens for cost in costs] for costs in (head, tail)]
    assert found.low >= min(per_token[1]) / max(per_token[0]) * (1 - 1e-12)
    assert found.high <= max(per_token[1]) / min(per_token[0]) * (1 + 1e-12)


def test_one_turn_each_leaves_nothing_to_draw() -> None:
    found = cost_ratio([Cost(2.0, 4)], [Cost(3.0, 3)])
    assert (found.low, found.estimate, found.high) == (2.0, 2.0, 2.0)
    assert found.half_width == 0


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_the_unit_of_time_does_not_matter(factor: float) -> None:
    head, tail = series(30, seed="head"), series(30, seed="tail")
    found, other = cost_ratio(head, tail), cost_ratio(scaled(head, factor), scaled(tail, factor))
    assert (other.low, other.estimate, other.high) == pytest.approx((found.low, found.estimate, found.high), rel=1e-9)
    twice = cost_ratio(head, scaled(tail, 2))
    assert (twice.low, twice.high) == pytest.approx((2 * found.low, 2 * found.high), rel=1e-9)
    assert twice.half_width == pytest.approx(found.half_width, rel=1e-9)


def test_every_turn_is_drawn_as_often_as_another() -> None:
    """Also the last one, behind which the series begins again: a slow turn costs the same wherever it stands."""
    widths = []
    for place in (0, 13, 26):
        tail = [Cost(1.0, 10)] * 27
        tail[place] = Cost(5.0, 10)
        widths.append(cost_ratio([Cost(1.0, 10)] * 27, tail).half_width)
    assert widths == pytest.approx([widths[0]] * 3, rel=0.1)


def test_half_the_width_is_a_share_of_the_estimate() -> None:
    assert Interval(estimate=2.0, low=1.5, high=2.7).half_width == pytest.approx(0.3)
