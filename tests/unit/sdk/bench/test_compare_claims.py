"""Claims: what is at least so many times slower than the runtime, or is not, or cannot be said."""

import pytest

from kakeya.bench.compare import claims
from kakeya.bench.compare.played_turn import PlayedTurn
from kakeya.bench.compare.rival import Rival
from kakeya.bench.verdict import Outcome, Verdict, exit_status
from tests.unit.sdk.bench.comparing import played

RIVALS = (Rival("a", "http://h"), Rival("b", "http://h", plays_every_turn=False))


def judge(factor: float, *turns: PlayedTurn, name: str = "a") -> Verdict:
    [verdict] = claims.judge({name: factor}, RIVALS, turns, 10)
    return verdict


@pytest.mark.parametrize(
    ("factor", "outcome", "status"), [(19.9, Outcome.PASSED, 0), (20.0, Outcome.PASSED, 0), (20.1, Outcome.FAILED, 1)]
)
def test_a_factor(factor: float, outcome: Outcome, status: int) -> None:
    verdict = judge(factor, played(10, 0.25), played(10, 5.0, "a"))
    assert (verdict.outcome, exit_status([verdict])) == (outcome, status)
    assert verdict.formula == f"time to first token at turn 10: a / kakeya >= {factor:g}"
    assert verdict.reason == "5,000.0 ms / 250.0 ms = 20.0"
    assert verdict.figures == {"turn": 10, "at_least": factor, "a": 5.0, "kakeya": 0.25, "ratio": 20.0}


def test_medians_are_compared() -> None:
    turns = [played(index, seconds) for index, seconds in ((6, 9.0), (7, 1.0), (8, 1.0), (9, 9.0), (10, 1.0))]
    theirs = [played(index, 3.0, "a") for index in range(6, 10)] + [played(10, 90.0, "a")]
    assert judge(3, *turns, *theirs).figures["ratio"] == 3.0


def test_a_player_of_marks_stands_for_its_mark_alone() -> None:
    assert judge(5, played(10), played(9, 1.0, "b"), played(10, 5.0, "b"), name="b").outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("turns", "who"),
    [
        ([], "a"),
        ([played(10, 1.0, "a")], "kakeya"),
        ([played(10)], "a"),
        ([played(10), played(9, 1.0, "a")], "a"),
        ([played(10), played(10, None, "a")], "a"),
        ([played(10), played(10, 1.0, "a", time_to_first_token_seconds=None)], "a"),
        ([played(10, 0.0), played(10, 1.0, "a")], "kakeya"),
    ],
)
def test_what_cannot_be_said(turns: list[PlayedTurn], who: str) -> None:
    verdict = judge(2, *turns)
    assert (verdict.outcome, exit_status([verdict])) == (Outcome.UNDECIDED, 2)
    assert verdict.reason == f"{who} has no time to first token at turn 10"


def test_nothing_claimed() -> None:
    assert claims.judge({}, RIVALS, [], 10) == []
