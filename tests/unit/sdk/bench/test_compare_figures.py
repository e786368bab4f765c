"""A player's turns in figures."""

from typing import Any

import pytest

from kakeya.bench.compare.figures import AtMark, at_mark, figures
from kakeya.bench.compare.played_turn import PlayedTurn
from tests.unit.sdk.bench.comparing import played


def of(turns: list[PlayedTurn], **facts: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {"marks": (1, 3), "num_turns": 3, "plays_every_turn": True, "rss_before": None}
    return figures(turns, **usual | facts)


def test_a_mark_is_the_median_of_the_five_turns_that_end_there() -> None:
    turns = [played(index, seconds) for index, seconds in enumerate([9, 9, 9, 4, 1, 5, 2, 3, 9, 9], 1)]
    assert at_mark(turns, 8, plays_every_turn=True) == AtMark(3.0, 6.0, 5)
    assert at_mark(turns, 2, plays_every_turn=True) == AtMark(9.0, 18.0, 2)
    assert at_mark(reversed(turns), 8, plays_every_turn=True) == AtMark(3.0, 6.0, 5), "in whatever order"


def test_a_mark_of_a_player_of_marks_is_that_turn() -> None:
    turns = [played(7, 2.0), played(8, 3.0)]
    assert at_mark(turns, 8, plays_every_turn=False) == AtMark(3.0, 6.0, 1)


@pytest.mark.parametrize("turns", [[], [played(7)], [played(7), played(8, None)]])
def test_a_mark_that_was_not_reached_has_no_figures(turns: list[PlayedTurn]) -> None:
    assert at_mark(turns, 8, plays_every_turn=True) is None


def test_turns_that_failed_are_not_in_a_mark() -> None:
    assert at_mark([played(7, None), played(8, 2.0)], 8, plays_every_turn=True) == AtMark(2.0, 4.0, 1)


def test_turns_without_a_token() -> None:
    silent = played(8, time_to_first_token_seconds=None, total_seconds=4.0)
    assert at_mark([silent], 8, plays_every_turn=True) == AtMark(None, 4.0, 1)
    assert of([silent])["time_to_first_token_s"] is None


def test_of_nothing() -> None:
    assert of([]) == {
        "num_turns": 0, "num_errors": 0, "first_error": None, "marks": {"1": None, "3": None}, "conversation_s": None,
        "time_to_first_token_s": None, "turn_s": None, "num_sent_tokens": 0, "num_cached_tokens": None,
        "num_dropping_turns": 0, "num_unknown_answers": 0, "rss_bytes": None, "kv_live_bytes": None,
        "kv_computed_bytes": None,
    }  # fmt: skip


def test_of_a_whole_conversation() -> None:
    found = of(
        [
            played(1, 1.0, rss_bytes=20, kv_live_bytes=1, num_cached_tokens=0),
            played(2, 3.0, rss_bytes=50, kv_live_bytes=2, num_cached_tokens=4, num_dropped_tokens=7),
            played(3, 2.0, rss_bytes=40, kv_live_bytes=2, num_cached_tokens=3, knows_answer=False),
        ],
        rss_before=10,
    )
    assert found["marks"] == {
        "1": {"time_to_first_token_s": 1.0, "turn_s": 2.0, "num_turns": 1},
        "3": {"time_to_first_token_s": 2.0, "turn_s": 4.0, "num_turns": 3},
    }
    assert found["conversation_s"] == 12.0
    assert (found["time_to_first_token_s"]["mean"], found["time_to_first_token_s"]["max"]) == (2.0, 3.0)
    assert found["rss_bytes"] == {"start": 10, "end": 40, "max": 50}
    assert found["kv_live_bytes"] == {"start": 1, "end": 2, "max": 2}
    assert (found["num_sent_tokens"], found["num_cached_tokens"]) == (15, 7)
    assert (found["num_dropping_turns"], found["num_unknown_answers"], found["num_errors"]) == (1, 1, 0)


def test_a_conversation_with_a_gap_has_no_length() -> None:
    found = of([played(1), played(2, None, rss_bytes=9), played(3)], rss_before=8)
    assert found["conversation_s"] is None
    assert (found["num_turns"], found["num_errors"], found["first_error"]) == (3, 1, "turn 2: it failed")
    assert found["rss_bytes"] == {"start": 8, "end": None, "max": 9}


def test_whose_answers_are_known_matters_to_nobody_who_plays_marks() -> None:
    assert of([played(1, knows_answer=False)], plays_every_turn=False)["num_unknown_answers"] is None
