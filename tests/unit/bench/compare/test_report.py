"""A player's turns in figures, and claims: what is so many times slower than the runtime, is not, or cannot be told."""

from pathlib import Path
from typing import Any

import pytest

from kakeya_bench.compare import page
from kakeya_bench.compare.report import Report
from kakeya_bench.compare.turns import PlayedTurn
from kakeya_bench.report.verdict import Outcome, Verdict, exit_status
from tests.unit.bench.compare.comparing import figures_of, played, report
from tests.unit.bench.report import golden


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
        "schema",
        "state",
        "started_at",
        "written_at",
        "options",
        "environment",
        "model",
        "rival_kv",
        "marks",
        "turns_to_a_mark",
        "players",
        "claims",
        "turns",
    ]
    assert (document["schema"], document["turns_to_a_mark"]) == ("kakeya.bench.compare/1", 5)
    assert of() == {
        "name": "kakeya",
        "kind": "runtime",
        "plays_every_turn": True,
        "left_out_after_turn": None,
        "num_turns": 0,
        "num_errors": 0,
        "first_error": None,
        "marks": {"1": None, "3": None},
        "conversation_s": None,
        "time_to_first_token_s": None,
        "turn_s": None,
        "num_sent_tokens": 0,
        "num_cached_tokens": None,
        "num_new_tokens": None,
        "num_appended_tokens": None,
        "num_continued_turns": None,
        "client_s": None,
        "long_chat": None,
        "num_dropping_turns": 0,
        "num_unknown_answers": 0,
        "rss_bytes": None,
        "kv_live_bytes": None,
        "kv_computed_bytes": None,
    }
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


GOLDEN = Path(__file__).parent / "golden" / "compare.html"


def full() -> Report:
    """Of three turns, in which all happens that there is to be told."""
    made = report(flags=("--at-least=a=2", "--at-least=c=9"), why_not="no <config>")
    made.state = "complete"
    made.rss_before = {"kakeya": 1 << 20, "a": 2 << 20, "c": None}
    made.left_out = {"a": 4}
    for index in (1, 2, 3):
        dropped = {"num_dropped_tokens": index - 1, "knows_answer": index > 1}
        made.turns += [
            played(index, 0.5, kv_live_bytes=1024 * index, rss_bytes=3 << 20),
            played(index, 1.5 * index, "a", kv_computed_bytes=512 * index, rss_bytes=4 << 20, **dropped),
            played(index, 2.0, "c"),
        ]
    made.turns.append(played(4, None, "a", error="HTTP 400: <no>"))
    return made


def test_the_whole_page() -> None:
    files = page.files(full().document() | {"written_at": "2026-01-01T00:01:00+00:00"})
    assert files.keys() == {"compare.html", "compare.png"}
    assert not golden.differs(files["compare.html"], GOLDEN, "compare.svg")


@pytest.mark.parametrize(
    "made",
    [
        report(why_not="no config"),
        report(*(played(index, 0.1 * index, rss_bytes=index) for index in range(1, 4))),
        report(*(played(index, 0.1, name) for index in range(1, 800) for name in ("kakeya", "a", "c"))),
    ],
    ids=["no turn", "one player", "many turns"],
)
def test_the_picture_draws(made: Report) -> None:
    assert page.files(made.document())["compare.png"].startswith(b"\x89PNG")


def test_the_summary_says_what_the_page_says_first() -> None:
    title, sections = page.summary(full().document())
    assert title == "kakeya bench compare: counter"
    assert [section.heading for section in sections] == [
        "Time to first token",
        "Claims",
        "Memory",
        "Turns that failed",
    ]


@pytest.mark.parametrize(
    ("api", "what"), [("chat", "all messages"), ("responses", "its new message behind the response before")]
)
def test_what_is_said_of_texts(api: str, what: str) -> None:
    made = report(flags=(f"--rival=b=http://h/v1,api={api},model=m,tokenizer=t", "--goes-on=b"))
    for index in (1, 2, 3):
        told = {"num_new_tokens": 100, "num_appended_tokens": 101, "session_why": "w", "client_seconds": 0.25}
        made.turns.append(played(index, 0.5, "b", session_state="continued" if index > 1 else "new", **told))
    files, (_, sections) = page.files(made.document()), page.summary(made.document())
    notes = [each for each in sections[0].blocks if isinstance(each, str)]
    went_on = "2 of 3 turns went on in its session, and 303 tokens were appended for 300 new ones"
    assert f"b: sends {what} each turn; {went_on}." in notes
    assert any("its client made that in 250.00 ms before" in note for note in notes)
    assert b"b appended" in files["compare.html"]
