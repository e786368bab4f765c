"""The costs of a step, fitted to measured ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_worker.engine.costs.step_costs import MeasuredStep, StepCosts, fit

SIZES = [(1, 1), (1, 2052), (5, 8200), (5, 11), (17, 33_000), (17, 137)]  # tokens and visible slots
_costs = st.builds(StepCosts, st.floats(1e-4, 1.0), st.floats(0.0, 1e-2), st.floats(0.0, 1e-4))
_disturbances = st.lists(st.floats(0.5, 2.0), min_size=len(SIZES), max_size=len(SIZES))


def _measured(costs: StepCosts, disturbances: list[float]) -> list[MeasuredStep]:
    return [MeasuredStep(*size, costs.seconds(*size) * times) for size, times in zip(SIZES, disturbances, strict=True)]


def _three(costs: StepCosts) -> tuple[float, float, float]:
    return costs.step_seconds, costs.token_seconds, costs.slot_seconds


def test_a_step_is_the_sum_of_its_parts() -> None:
    costs = StepCosts(step_seconds=1.0, token_seconds=0.1, slot_seconds=0.001)
    assert costs.seconds(3, 200) == pytest.approx(1.0 + 0.3 + 0.2)
    assert costs.seconds(4, 250) - costs.seconds(3, 200) == pytest.approx(costs.added_seconds(50))


@given(_costs)
def test_costs_are_found_again(costs: StepCosts) -> None:
    assert _three(fit(_measured(costs, [1.0] * len(SIZES)))) == pytest.approx(_three(costs), rel=1e-6, abs=1e-9)


@given(_costs)
def test_three_steps_tell_all_costs(costs: StepCosts) -> None:
    three = _measured(costs, [1.0] * len(SIZES))[:3]
    assert _three(fit(three)) == pytest.approx(_three(costs), rel=1e-6, abs=1e-9)


@given(_costs, _disturbances)
def test_the_fit_is_the_best_without_negative_costs(costs: StepCosts, disturbances: list[float]) -> None:
    """By the conditions of Karush, Kuhn and Tucker: no cost can be moved either way, but below zero."""
    measured = _measured(costs, disturbances)
    fitted = np.array(_three(fit(measured)))
    seconds = np.array([step.seconds for step in measured])
    table = np.array([(1.0, *size) for size in SIZES]) / seconds[:, None]
    scales = np.linalg.norm(table, axis=0)
    slopes = table.T @ (table @ fitted - 1.0) / scales
    assert fitted.min() >= 0.0
    assert slopes.min() > -1e-6
    assert np.abs(slopes[fitted > 0.0]).max() < 1e-6


def test_errors_count_in_proportion() -> None:
    """A step that is long anyway does not make a short one seem long."""
    short, long = MeasuredStep(1, 1, 0.010), MeasuredStep(17, 33_000, 2.0)
    fitted = fit([short, MeasuredStep(1, 2052, 0.012), long, long._replace(seconds=4.0)])
    assert fitted.seconds(1, 1) == pytest.approx(short.seconds, rel=0.1)


@pytest.mark.parametrize("seconds", [0.0, float("nan"), float("inf")])
def test_steps_of_no_time_tell_nothing(seconds: float) -> None:
    with pytest.raises(np.linalg.LinAlgError, match="a step took no time, or none that is a number"):
        fit([MeasuredStep(1, 1, 0.01), MeasuredStep(1, 2, seconds)])
