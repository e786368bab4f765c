"""How much prefills may add to a step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_worker.engine.costs.step_costs import FREE, StepCosts
from kakeya_worker.engine.steps.scheduler import LEAST_PREFILL_PART, StepBudget

COSTS = StepCosts(step_seconds=0.010, token_seconds=0.002, slot_seconds=0.000_001)
_costs = st.builds(StepCosts, st.floats(1e-4, 1.0), st.floats(0.0, 1e-2), st.floats(0.0, 1e-4))
_prefills = st.lists(st.tuples(st.integers(1, 32), st.integers(1, 4096)), max_size=6)


def test_prefills_get_as_much_time_as_those_who_generate() -> None:
    left = StepBudget(128).for_prefills(COSTS, num_generates=1, num_visible_slots=1000)
    assert left.seconds == pytest.approx(0.013)
    assert left.take(32, 1000) == 4  # of 3 ms each
    assert left.take(32, 1000) == 0


def test_a_given_time_is_of_the_whole_step() -> None:
    left = StepBudget(128, seconds=0.100).for_prefills(COSTS, num_generates=1, num_visible_slots=1000)
    assert left.seconds == pytest.approx(0.087)


def test_a_given_time_that_is_too_short_leaves_prefills_a_part() -> None:
    left = StepBudget(128, seconds=0.001).for_prefills(COSTS, num_generates=10, num_visible_slots=10)
    assert left.seconds == pytest.approx(LEAST_PREFILL_PART * COSTS.seconds(10, 10))


@pytest.mark.parametrize("seconds", [None, 0.001])
def test_nobody_waits_for_prefills_alone(seconds: float | None) -> None:
    left = StepBudget(128, seconds).for_prefills(COSTS, num_generates=0, num_visible_slots=0)
    assert [left.take(32, 4096) for _ in range(5)] == [32, 32, 32, 32, 0]


def test_unknown_costs_bound_nothing() -> None:
    left = StepBudget(48, 0.001).for_prefills(FREE, num_generates=8, num_visible_slots=10**6)
    assert [left.take(32, 4096) for _ in range(3)] == [32, 8, 0]


def test_the_first_token_is_taken_whatever_it_costs() -> None:
    left = StepBudget(128).for_prefills(StepCosts(0.0, 0.0, 1.0), num_generates=1, num_visible_slots=1)
    assert left.take(32, 4096) == 1
    assert left.take(32, 1) == 0


@given(_costs, st.none() | st.floats(1e-3, 1.0), st.integers(1, 100), st.integers(1, 4096), _prefills)
def test_no_more_is_taken_than_there_is(
    costs: StepCosts, seconds: float | None, num_generates: int, slots: int, prefills: list[tuple[int, int]]
) -> None:
    left = StepBudget(128, seconds).for_prefills(costs, num_generates, slots)
    allowed_seconds, taken_seconds, num_taken = left.seconds, 0.0, 0
    for num_wanted, num_visible_slots in prefills:
        taken = left.take(num_wanted, num_visible_slots)
        assert 0 <= taken <= num_wanted
        num_taken += taken
        taken_seconds += taken * costs.added_seconds(num_visible_slots)
    assert num_generates + num_taken <= 128
    assert taken_seconds <= allowed_seconds * (1 + 1e-9) or num_taken == 1
    assert num_taken >= min(1, len(prefills))


def test_tokens_that_are_scored_cost_what_that_takes_beside_their_pass() -> None:
    left = StepBudget(128).for_prefills(COSTS, num_generates=1, num_visible_slots=0)
    assert left.take(32, 1000, scoring_seconds=0.001) == 3  # of 4 ms each
    assert left.take(32, 1000) == 0
