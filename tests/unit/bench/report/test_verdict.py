"""Bounds of what was measured."""

import pytest

from kakeya_bench.report.quantities import Precise, Seconds
from kakeya_bench.report.verdict import EXIT_FAILED, Outcome, at_least, at_most, exit_status


@pytest.mark.parametrize(("value", "outcome"), [(1.05, "passed"), (1.065, "failed"), (float("nan"), "failed")])
def test_what_may_not_be_larger(value: float, outcome: str) -> None:
    verdict = at_most("CreateSession", "of the base:", Precise(value), Precise(1.05))
    assert (verdict.gate, verdict.outcome) == ("CreateSession", Outcome(outcome))
    assert verdict.formula == "of the base: <= 1.050"
    assert verdict.reason == f"of the base: {value:.3f}, at most 1.050"
    assert exit_status([verdict]) == (0 if outcome == "passed" else EXIT_FAILED)


@pytest.mark.parametrize(("value", "outcome"), [(0.3, "passed"), (0.25, "failed")])
def test_what_may_not_be_smaller(value: float, outcome: str) -> None:
    verdict = at_least("pause", "it lasts", Seconds(value), Seconds(0.3))
    assert verdict.outcome is Outcome(outcome)
    assert verdict.reason == f"it lasts {value * 1e3:.2f} ms, at least 300.00 ms"
    assert verdict.figures == {"value": value, "bound": 0.3}
