"""The demo's arithmetic: what counts as wrong, what is written."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kakeya_local.demo.report import DemoReport, Opened, Reading
from kakeya_local.demo.summary import verdict
from kakeya_local.demo.turn import Turn

BYTES_PER_TOKEN = 10


def report(num_turns: int = 4, new_tokens: int = 5) -> DemoReport:
    """One conversation, lanes of 2 sinks and a window of 6, of which one more token is pinned; every reading right."""
    made = DemoReport("tiny", sink=2, window=6, kv_bytes_per_token=BYTES_PER_TOKEN)
    made.sessions.append(Opened(1, "a talk", "Be brief.", sink=3, window=5, pinned_tokens=3))
    for number in range(1, num_turns + 1):
        length = number * new_tokens
        live_bytes = min(length, 8) * BYTES_PER_TOKEN
        made.turns.append(Turn(1, number, length, new_tokens, 2, 0.003, 0.004, live_bytes))
        made.readings.append(Reading(1, number, "generate", length, live_bytes))
    return made


def test_right_bytes_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict(report(), long_histories=False) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("difference", [-BYTES_PER_TOKEN, -1, 1, BYTES_PER_TOKEN])
@pytest.mark.parametrize("index", [0, 3])
def test_one_wrong_reading_fails(index: int, difference: int, capsys: pytest.CaptureFixture[str]) -> None:
    made = report()
    right = made.readings[index]
    made.readings[index] = replace(right, kv_live_bytes=right.kv_live_bytes + difference)
    assert verdict(made, long_histories=False) == 1
    assert capsys.readouterr().err == (
        f"kakeya demo: error: conversation 1 turn {index + 1}: generate says kv_live_bytes "
        f"{right.kv_live_bytes + difference} at history {right.history_length}, must be {right.kv_live_bytes}\n"
    )


def test_bytes_that_are_always_zero_fail() -> None:
    made = report()
    made.readings = [replace(reading, kv_live_bytes=0) for reading in made.readings]
    assert verdict(made, long_histories=False) == 1


def test_a_session_is_held_to_its_own_sinks_and_window() -> None:
    made = report()
    made.sessions[0] = replace(made.sessions[0], window=4)
    assert len(made.wrong_bytes()) == 3, "all but the first, whose history is shorter than that"


def told(*answers: str) -> DemoReport:
    """A report of turns of which each should say "blue"."""
    made = report(num_turns=len(answers) + 1)
    for index, answer in enumerate(answers):
        made.turns[index] = replace(made.turns[index], user="Which?", answer=answer, expected="blue")
    return made


def test_one_answer_may_lack_what_is_expected(capsys: pytest.CaptureFixture[str]) -> None:
    made = told("It is blue.", "It is red.", "blue")
    assert [turn.turn for turn in made.expectations()] == [1, 2, 3]
    assert [turn.turn for turn in made.missed()] == [2]
    assert verdict(made, long_histories=False) == 0
    assert capsys.readouterr().err == ""


def test_two_answers_may_not(capsys: pytest.CaptureFixture[str]) -> None:
    made = told("It is green.", "It is red.", "blue")
    assert verdict(made, long_histories=False) == 1
    assert capsys.readouterr().err.splitlines() == [
        "kakeya demo: error: conversation 1 turn 1: 'Which?' is answered 'It is green.', which lacks 'blue'",
        "kakeya demo: error: conversation 1 turn 2: 'Which?' is answered 'It is red.', which lacks 'blue'",
    ]


def test_not_to_know_what_is_still_in_sight_is_no_proof() -> None:
    made = told("I do not know.", "blue", "blue")
    made.turns[0] = replace(made.turns[0], expected="do not know")
    assert made.missed() == []
    made.turns[0] = replace(made.turns[0], still_in_sight=True)
    assert made.missed() == [made.turns[0]]
    assert made.turns[0].fault == "although what should have been forgotten is still in sight"


def test_short_histories_fail_where_long_ones_are_due(capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict(report(num_turns=10, new_tokens=4), long_histories=True) == 1
    assert "conversation 1: history 40 does not exceed 40" in capsys.readouterr().err
    assert verdict(report(num_turns=9), long_histories=True) == 0


def test_pace_tells_first_turns_from_last() -> None:
    made = report(num_turns=12)
    made.turns[-1] = replace(made.turns[-1], prefill_seconds=0.003 + 0.15, decode_seconds=0.004 + 0.1)
    first, last = made.first_and_last()
    assert (first.prefill_seconds, first.decode_seconds) == pytest.approx((0.001, 0.002))
    assert (last.prefill_seconds, last.decode_seconds) == pytest.approx((0.011, 0.012))


def test_json_is_what_was_promised(tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    path.write_text("an older one")
    made = report(num_turns=1)
    made.turns[0] = replace(
        made.turns[0], user="Which?", answer="It is red.", expected="blue", evicted_tokens=1, forgotten_tokens=2
    )
    made.write_json(path)
    assert json.loads(path.read_text()) == {
        "model": "tiny",
        "sink": 2,
        "window": 6,
        "kv_bytes_per_token": 10,
        "conversations": [
            {
                "conversation": 1,
                "title": "a talk",
                "system": "Be brief.",
                "sink": 3,
                "window": 5,
                "pinned_tokens": 3,
                "tools": [],
            }
        ],
        "turns": [
            {
                "conversation": 1,
                "turn": 1,
                "history_length": 5,
                "new_tokens": 5,
                "prefill_seconds": 0.003,
                "decode_seconds": 0.004,
                "kv_live_bytes": 50,
                "user": "Which?",
                "answer": "It is red.",
                "expected": "blue",
                "still_in_sight": False,
                "as_expected": False,
                "evicted_tokens": 1,
                "forgotten_tokens": 2,
                "over_http": None,
            }
        ],
        "http": None,
    }
    assert list(tmp_path.iterdir()) == [path]


def test_json_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "demo.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        report().write_json(tmp_path / "demo.json")
    assert [path.name for path in tmp_path.iterdir()] == ["demo.json"]
