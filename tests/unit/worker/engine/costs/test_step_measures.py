"""Costs follow what steps take."""

import math

import pytest
from structlog.testing import capture_logs

from kakeya_worker.engine.costs.step_costs import FREE, REFIT_STEPS, MeasuredStep, StepCosts, StepMeasures

BEFORE = StepCosts(step_seconds=0.012, token_seconds=0.0002, slot_seconds=0.000_001)
AFTER = StepCosts(step_seconds=0.002, token_seconds=0.0001, slot_seconds=0.000_000_3)
SIZES = [(1, 1), (1, 2052), (5, 8200), (5, 11), (17, 33_000), (17, 137)]
ALONE, BESIDE = (1, 2052), (9, 18_000)  # tokens and visible slots


def _step(size: tuple[int, int], costs: StepCosts, times: float = 1.0) -> MeasuredStep:
    return MeasuredStep(*size, costs.seconds(*size) * times)


def _started() -> StepMeasures:
    measures = StepMeasures()
    measures.start(_step(size, BEFORE) for size in SIZES)
    return measures


def test_nothing_is_known_before_the_start() -> None:
    measures = StepMeasures()
    for _ in range(2 * REFIT_STEPS):
        measures.add(_step(ALONE, BEFORE))
    assert measures.costs is FREE


def test_the_start_tells_all_costs() -> None:
    costs = _started().costs
    assert costs.seconds(*BESIDE) == pytest.approx(BEFORE.seconds(*BESIDE))
    assert costs.added_seconds(2052) == pytest.approx(BEFORE.added_seconds(2052))


def test_what_runs_counts_soon() -> None:
    measures = _started()
    for _ in range(4 * REFIT_STEPS):
        measures.add(_step(ALONE, AFTER))
    assert measures.costs.seconds(*ALONE) == pytest.approx(AFTER.seconds(*ALONE), rel=0.1)


def test_two_kinds_of_steps_tell_what_prefills_add() -> None:
    measures = _started()
    for size in (ALONE, BESIDE):
        for _ in range(10 * REFIT_STEPS):
            measures.add(_step(size, AFTER))
    added = AFTER.seconds(*BESIDE) - AFTER.seconds(*ALONE)
    assert measures.costs.seconds(*ALONE) == pytest.approx(AFTER.seconds(*ALONE), rel=0.1)
    assert measures.costs.seconds(*BESIDE) - measures.costs.seconds(*ALONE) == pytest.approx(added, rel=0.1)


def test_a_disturbed_step_hardly_counts() -> None:
    measures = _started()
    for number in range(4 * REFIT_STEPS):
        measures.add(_step(BESIDE, BEFORE, times=20.0 if number % 4 == 0 else 1.0))
    assert measures.costs.seconds(*BESIDE) == pytest.approx(BEFORE.seconds(*BESIDE), rel=0.3)


def test_the_latest_of_a_size_are_kept() -> None:
    """However long a worker runs: what is remembered is bounded by the number of sizes."""
    measures = _started()
    for number in range(10_000):
        measures.add(_step((1 + number % 128, 1 + number % 128 * 2000), AFTER))
    assert sum(map(len, measures._samples.values())) < 300


def test_a_fit_that_fails_changes_nothing_and_is_told_once() -> None:
    measures = _started()
    costs = measures.costs
    with capture_logs() as logs:
        for _ in range(3 * REFIT_STEPS):
            measures.add(MeasuredStep(*ALONE, math.nan))
    assert measures.costs is costs
    assert [line["log_level"] for line in logs] == ["warning"]
