"""A player's turns in figures, and claims: what is so many times slower than the runtime, is not, or cannot be told."""

from typing import Any

import pytest

from kakeya_bench.compare.turn import PlayedTurn
from kakeya_bench.report.verdict import Outcome, Verdict, exit_status
from tests.unit.bench.compare.comparing import figures_of, played, report


def of(*turns: PlayedTurn, marks: str = "1,3", name: str = "kakeya", **rss_before: int) -> dict[str, Any]:
    made = report(*turns, flags=(f"--marks={marks}", f"--turns={max(3, int(marks[-1]))}"))
    made.rss_before.update(rss_before)
    return figures_of(made.document(), name)


def at_mark(*turns: PlayedTurn, name: str = "kakeya") -> Any:
    return of(*turns, marks="8", name=name)["marks"]["8"]


def test_a_mark_is_the_median_of_the_five_turns_that_end_there() -> None:
    turns = [played(index, seconds) for index, seconds in enumerate([9, 9, 9, 4, 1, 5, 2, 3], 1)]
    assert at_mark(*turns) == {"time_to_first_token_s": 3.0, "turn_s": 6.0, "num_turns": 5}
    failed = [*turns[:3], *(played(index, None) for index in range(4, 8)), turns[7]]
    assert at_mark(*failed) == {"time_to_first_token_s": 3.0, "turn_s": 6.0, "num_turns": 1}
    alone = [played(7, 2.0, "c"), played(8, 3.0, "c")]
    assert at_mark(*alone, name="c") == {"time_to_first_token_s": 3.0, "turn_s": 6.0, "num_turns": 1}
    silent = played(8, time_to_first_token_seconds=None, total_seconds=4.0)
    assert at_mark(silent) == {"time_to_first_token_s": None, "turn_s": 4.0, "num_turns": 1}


@pytest.mark.parametrize("turns", [[], [played(7)], [played(7), played(8, None)]])
def test_a_mark_that_was_not_reached_has_no_figures(turns: list[PlayedTurn]) -> None:
    assert at_mark(*turns) is None


def test_of_a_whole_conversation() -> None:
    found = of(
        played(1, 1.0, rss_bytes=20, kv_live_bytes=1, num_cached_tokens=0),
        played(2, 3.0, rss_bytes=50, kv_live_bytes=2, num_cached_tokens=4, num_dropped_tokens=7),
        played(3, 2.0, rss_bytes=40, kv_live_bytes=2, num_cached_tokens=3, knows_answer=False),
        kakeya=10,
    )
    assert found["marks"] == {
        "1": {"time_to_first_token_s": 1.0, "turn_s": 2.0, "num_turns": 1},
        "3": {"time_to_first_token_s": 2.0, "turn_s": 4.0, "num_turns": 3},
    }
    assert found["conversation_s"] == 12.0
    assert (found["time_to_first_token_s"]["mean"], found["turn_s"]["max"]) == (2.0, 6.0)
    assert found["rss_bytes"] == {"start": 10, "end": 40, "max": 50}
    assert found["kv_live_bytes"] == {"start": 1, "end": 2, "max": 2}
    assert (found["num_sent_tokens"], found["num_cached_tokens"]) == (15, 7)
    assert (found["num_dropping_turns"], found["num_unknown_answers"], found["num_errors"]) == (1, 1, 0)


def test_a_conversation_with_a_gap_has_no_length() -> None:
    found = of(played(1), played(2, None, rss_bytes=9), played(3), kakeya=8)
    assert found["conversation_s"] is None
    assert (found["num_turns"], found["num_errors"], found["first_error"]) == (3, 1, "turn 2: it failed")
    assert found["rss_bytes"] == {"start": 8, "end": None, "max": 9}
    assert of(played(1, player="c", knows_answer=False), name="c")["num_unknown_answers"] is None, "of no consequence"


def test_the_documents_fields_stay_as_they_are() -> None:
    document = report(flags=("--at-least=a=2",)).document()
    assert list(document) == [
        "schema", "state", "started_at", "written_at", "options", "environment", "model", "rival_kv", "marks",
        "turns_to_a_mark", "players", "claims", "turns",
    ]  # fmt: skip
    assert (document["schema"], document["turns_to_a_mark"]) == ("kakeya.bench.compare/1", 5)
    assert of() == {
        "name": "kakeya", "kind": "runtime", "plays_every_turn": True, "left_out_after_turn": None,
        "num_turns": 0, "num_errors": 0, "first_error": None, "marks": {"1": None, "3": None}, "conversation_s": None,
        "time_to_first_token_s": None, "turn_s": None, "num_sent_tokens": 0, "num_cached_tokens": None,
        "num_dropping_turns": 0, "num_unknown_answers": 0, "rss_bytes": None, "kv_live_bytes": None,
        "kv_computed_bytes": None,
    }  # fmt: skip
    assert set(document["claims"]["a"]) == {"outcome", "formula", "reason", "figures"}


def judge(factor: float, *turns: PlayedTurn, name: str = "a") -> Verdict:
    [verdict] = report(*turns, flags=("--turns=10", f"--at-least={name}={factor}")).verdicts()
    return verdict


@pytest.mark.parametrize(
    ("factor", "outcome", "status"), [(19.9, Outcome.PASSED, 0), (20.0, Outcome.PASSED, 0), (20.1, Outcome.FAILED, 1)]
)
def test_a_claim(factor: float, outcome: Outcome, status: int) -> None:
    verdict = judge(factor, played(10, 0.25), played(10, 5.0, "a"))
    assert (verdict.outcome, exit_status([verdict])) == (outcome, status)
    assert verdict.formula == f"time to first token at turn 10: a / kakeya >= {factor:g}"
    assert verdict.reason == "5,000.0 ms / 250.0 ms = 20.0"
    assert verdict.figures == {"turn": 10, "at_least": factor, "a": 5.0, "kakeya": 0.25, "ratio": 20.0}
    one = judge(5, played(10), played(9, 1.0, "c"), played(10, 5.0, "c"), name="c")
    assert one.outcome is Outcome.PASSED, "a player of marks stands for its mark alone"


@pytest.mark.parametrize(
    ("turns", "who"),
    [
        ([], "a"),
        ([played(10, 1.0, "a")], "kakeya"),
        ([played(10), played(9, 1.0, "a")], "a"),
        ([played(10), played(10, None, "a")], "a"),
        ([played(10), played(10, 1.0, "a", time_to_first_token_seconds=None)], "a"),
        ([played(10, 0.0), played(10, 1.0, "a")], "kakeya"),
    ],
)
def test_a_claim_of_which_nothing_can_be_told(turns: list[PlayedTurn], who: str) -> None:
    verdict = judge(2, *turns)
    assert (verdict.outcome, exit_status([verdict])) == (Outcome.UNDECIDED, 2)
    assert verdict.reason == f"{who} has no time to first token at turn 10"
