"""Figures of levels, on series whose answers are known."""

import pytest

from kakeya.bench.load.aggregation import aggregate, largest_within, share_within
from kakeya.bench.load.level import Level, LevelState
from kakeya.bench.load.limits import Limits
from tests.unit.sdk.bench.sweeping import failed, level, turn

LIMITS = Limits(2.0, 0.2)


def test_goodput_is_the_turns_in_time_in_a_second() -> None:
    good = [turn() for _ in range(5)]
    late = [turn(2.5, 0.1), turn(1.0, 0.3)]
    found = aggregate(level(2, *good, *late, failed(), measured_seconds=20.0), LIMITS)
    assert (found["num_turns"], found["num_errors"], found["num_within_limits"]) == (8, 1, 5)
    assert found["share_within_limits"] == 5 / 8
    assert found["goodput_turns_per_s"] == 5 / 20
    assert found["turns_per_s"] == 7 / 20
    assert (found["num_tokens_in"], found["num_tokens_out"]) == (7 * 3, 7 * 11)
    assert found["tokens_out_per_s"] == 77 / 20
    assert found["measured_s"] == 20.0


def test_the_warm_up_does_not_count() -> None:
    slow = turn(9.0, 9.0, is_warm_up=True)
    with_it = aggregate(level(1, slow, failed(is_warm_up=True), turn(), turn()), LIMITS)
    assert with_it == aggregate(level(1, turn(), turn()), LIMITS)
    assert with_it["num_turns"] == 2


def test_distributions_are_of_the_turns_that_succeeded() -> None:
    turns = [turn(seconds, seconds / 10, wall_seconds=2 * seconds) for seconds in (3.0, 1.0, 2.0, 5.0, 4.0)]
    found = aggregate(level(1, *turns, failed(wall_seconds=99.0)), LIMITS)
    assert found["time_to_first_token_s"] == pytest.approx(
        {"min": 1.0, "mean": 3.0, "max": 5.0, "p50": 3.0, "p90": 4.6, "p95": 4.8, "p99": 4.96}
    )
    assert found["time_per_output_token_s"] == pytest.approx(
        {"min": 0.1, "mean": 0.3, "max": 0.5, "p50": 0.3, "p90": 0.46, "p95": 0.48, "p99": 0.496}
    )
    assert found["turn_s"] == pytest.approx(
        {"min": 2.0, "mean": 6.0, "max": 10.0, "p50": 6.0, "p90": 9.2, "p95": 9.6, "p99": 9.92}
    )


def test_answers_of_one_token_have_no_time_for_each_after_it() -> None:
    found = aggregate(level(1, turn(1.0, None), turn(1.0, None)), LIMITS)
    assert found["time_per_output_token_s"] is None
    assert found["num_within_limits"] == 2


def test_nothing_is_computed_of_nothing() -> None:
    found = aggregate(Level(4), LIMITS)
    numbers = {name: value for name, value in found.items() if value is not None}
    assert numbers == {
        "measured_s": 0.0, "num_turns": 0, "num_errors": 0, "num_within_limits": 0, "num_tokens_in": 0,
        "num_tokens_out": 0,
    }  # fmt: skip
    assert share_within(Level(4), LIMITS) is None


def test_a_level_without_turns_has_a_goodput_of_nought() -> None:
    found = aggregate(level(1, measured_seconds=10.0), LIMITS)
    assert (found["goodput_turns_per_s"], found["share_within_limits"]) == (0.0, None)


class TestLargest:
    """The largest level with enough turns in time."""

    def test_it_is_the_last_one_that_reaches_the_goal(self) -> None:
        nine_of_ten = [*[turn()] * 9, turn(9.0)]
        levels = [level(1, turn()), level(2, *nine_of_ten), level(4, turn(), turn(9.0)), level(8, turn(9.0))]
        assert largest_within(levels, LIMITS, 0.9) == 2
        assert largest_within(levels, LIMITS, 0.91) == 1
        assert largest_within(levels, LIMITS, 0.5) == 4

    def test_a_level_into_which_not_all_got_is_none_of_so_many_sessions(self) -> None:
        levels = [level(1, turn()), level(4, turn(), num_opened=3)]
        assert largest_within(levels, LIMITS, 0.9) == 1

    def test_a_level_that_was_broken_off_lacks_its_longest_turns(self) -> None:
        levels = [level(1, turn()), level(4, turn(), state=LevelState.BROKEN_OFF)]
        assert largest_within(levels, LIMITS, 0.9) == 1

    def test_there_may_be_none(self) -> None:
        assert largest_within([], LIMITS, 0.9) is None
        assert largest_within([level(1), level(2, turn(9.0))], LIMITS, 0.9) is None
