"""Order statistics beside NumPy's."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kakeya.bench.percentile import SHARES, distribution, mean, median, percentile

# Differences of the largest ones are still finite.
ANY = st.floats(-1e300, 1e300)
SERIES = st.lists(ANY, min_size=1, max_size=40)
DURATIONS = st.lists(st.floats(1e-9, 1e6), min_size=1, max_size=200)
TIES = st.lists(st.sampled_from([0.0, 0.1, 0.25, 3.0]), min_size=1, max_size=60)
COUNTS = st.lists(st.integers(0, 1 << 40), min_size=1, max_size=60)


@settings(deadline=None)
@given(SERIES | DURATIONS | TIES | COUNTS, st.floats(0, 1))
@example([7.0], 0.99)
@example([1.0, 2.0], 0.5)
@example([-1e300, 1e300], 0.75)
@example([5e-324, 1e-323], 0.5)
@example([0.1, 0.1, 0.1], 0.3)
def test_a_percentile_is_numpys(values: list[float], share: float) -> None:
    found = percentile(sorted(values), share)
    assert found == np.quantile(values, share)
    assert min(values) <= found <= max(values)


@settings(deadline=None)
@given(SERIES | DURATIONS | TIES | COUNTS)
@example([2.1701478333569984e16, -1.8014398509481988e16])
def test_a_distribution_is_numpys(values: list[float]) -> None:
    found = distribution(values)
    assert found is not None
    assert list(found) == ["min", "mean", "max", "p50", "p90", "p95", "p99"]
    assert (found["min"], found["max"]) == (np.min(values), np.max(values))
    assert [found["p50"], found["p90"], found["p95"], found["p99"]] == list(np.percentile(values, [50, 90, 95, 99]))
    assert median(values) == np.median(values)
    largest = max(abs(value) for value in values)
    assert found["mean"] == pytest.approx(np.mean(values), rel=1e-12, abs=1e-12 * largest)


@settings(deadline=None)
@given(DURATIONS | COUNTS)
def test_a_mean_is_precise(values: list[float]) -> None:
    exact = float(sum(map(Fraction, values)) / len(values))
    assert mean(values) == pytest.approx(exact, rel=4e-16, abs=0)
    assert mean(values) == pytest.approx(np.mean(values), rel=1e-12, abs=0)


def test_a_mean_does_not_lose_small_values_beside_large_ones() -> None:
    assert mean([1e16, 1.0, -1e16]) == 1 / 3


def test_values_need_no_order() -> None:
    assert median([3, 1, 2]) == 2
    assert median(iter([4, 1, 3, 2])) == 2.5
    assert distribution([3, 1, 2]) == distribution([1, 2, 3])


def test_there_is_no_distribution_of_nothing() -> None:
    assert distribution([]) is None


def test_shares_are_what_their_names_say() -> None:
    assert {name: int(name.removeprefix("p")) / 100 for name in SHARES} == SHARES
