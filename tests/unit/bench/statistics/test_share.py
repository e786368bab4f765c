"""Shares of a count with Wilson's interval."""

import pytest

from kakeya_bench.statistics.share import NONE, Share


@pytest.mark.parametrize(
    ("hits", "num", "low", "high"),
    [(8, 10, 0.490162, 0.943318), (0, 10, 0.0, 0.277533), (10, 10, 0.722467, 1.0), (0, 0, 0.0, 1.0)],
)  # of R's binom::binom.wilson
def test_intervals_are_wilsons(hits: int, num: int, low: float, high: float) -> None:
    assert Share(hits, num).interval == pytest.approx((low, high), abs=1e-6)
    assert Share(hits, num).document() == {
        "hits": hits, "num": num, "share": hits / num if num else None,
        "low": pytest.approx(low, abs=1e-6), "high": pytest.approx(high, abs=1e-6),
    }  # fmt: skip


def test_shares_add_up_and_are_told() -> None:
    assert Share.of([True, False, True]) + Share(1, 1) == Share(3, 4)
    assert NONE.value is None
    assert str(NONE) == "-"
    assert str(Share(1, 2)) == "50.0% (9.5% to 90.5%, n = 2)"
