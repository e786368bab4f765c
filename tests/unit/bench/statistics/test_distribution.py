"""What is kept of many measurements."""

import pytest

from kakeya_bench.statistics.distribution import SHARES, distribution, extent, median, percentile


def test_what_is_known_of_values_in_any_order() -> None:
    values = [float(value) for value in (4, None, 100, 1, None, 3, 2, 0) if value is not None]
    assert distribution([None, *values, None]) == {
        "min": 0.0, "mean": pytest.approx(110 / 6), "max": 100.0, "p50": 2.5, "p90": 52.0, "p95": 76.0,
        "p99": pytest.approx(95.2),
    }  # fmt: skip
    assert extent([3, None, 1]) == {"min": 1, "mean": 2.0, "max": 3}
    assert (median(iter([4, 1, 3, 2])), percentile([1.0, 2.0], 75)) == (2.5, 1.75)
    assert {f"p{share}": share for share in (50, 90, 95, 99)} == SHARES


def test_there_are_no_figures_of_nothing() -> None:
    assert distribution([None]) is None
    assert extent([None]) is None
