"""What the demo prints: a live table in a terminal, plain lines elsewhere, and the summary."""

import io
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console
from tokenizers import Tokenizer, models

from kakeya_local import demo_command
from kakeya_local.conversation import Conversation
from kakeya_local.demo_report import DemoReport, Reading, Turn
from kakeya_local.demo_summary import summarize
from kakeya_local.demo_table import turn_table
from kakeya_local.errors import StackError
from kakeya_local.model_files import model_file

TURNS = [
    Turn(1, 1, 50, 50, 10, 0.1, 0.2, 500),
    Turn(1, 2, 100, 50, 10, 0.1, 0.2, 680),
    Turn(1, 3, 150, 50, 10, 0.1, 0.2, 680),
]


def console(output: io.StringIO, *, is_terminal: bool = False) -> Console:
    return Console(file=output, force_terminal=is_terminal, width=120)


@pytest.mark.parametrize("is_terminal", [False, True])
def test_each_turn_is_shown(is_terminal: bool) -> None:
    output = io.StringIO()
    with turn_table(console(output, is_terminal=is_terminal)) as table:
        for turn in TURNS:
            table.add(turn)
    shown = output.getvalue()
    for expected in ("conversation", "kv_live_bytes", "+50", "100.0", "200.0", "680"):
        assert expected in shown
    assert ("\x1b[" in shown) == is_terminal
    if not is_terminal:
        assert [line.split()[:3] for line in shown.splitlines()[1:]] == [
            ["1", "1", "50"],
            ["1", "2", "100"],
            ["1", "3", "150"],
        ]


@pytest.mark.parametrize(("wrong_bytes", "verdict"), [(0, "exact in all 3 readings"), (1, "wrong in 1 of 3 readings")])
def test_summary_says_growth_plateau_and_truth(wrong_bytes: int, verdict: str) -> None:
    output = io.StringIO()
    readings = [Reading(1, turn.turn, "info", turn.history_length, turn.kv_live_bytes) for turn in TURNS]
    readings[2] = Reading(1, 3, "info", 150, 680 + wrong_bytes)
    report = DemoReport(sink=4, window=64, kv_bytes_per_token=10, turns=TURNS, readings=readings)
    tokenizer = Tokenizer(models.WordLevel({"hello": 0, "[red]": 1}, unk_token="hello"))
    conversation = Conversation(1, "alice", [[0]], cast(Any, None), generated=[0, 1])
    summarize(report, [conversation], tokenizer, console(output))
    shown = output.getvalue()
    assert "history grew to 150 tokens in 3 turns, kv_live_bytes stayed at 680 from turn 2 on" in shown
    assert "min(history, 4 + 64) x 10 bytes a token by config.json, at most 680" in shown
    assert verdict in shown
    assert "2.50 ms an appended token, 20.00 ms a generated one" in shown
    assert "alice: 'hello [red]'" in shown


def test_a_model_directory_must_hold_its_files(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=f"the model directory {tmp_path} holds no tokenizer.json"):
        model_file(str(tmp_path), "tokenizer.json")
    (tmp_path / "tokenizer.json").touch()
    assert model_file(str(tmp_path), "tokenizer.json") == tmp_path / "tokenizer.json"


def test_a_hub_that_does_not_answer_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(StackError, match=r"cannot get config\.json of nobody/nothing: "):
        model_file("nobody/nothing", "config.json")


@pytest.mark.parametrize("flags", [["--turns", "0"], ["--sink", "-1"], ["--window", "x"]])
def test_senseless_sizes_are_refused(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        demo_command.main(flags)
    assert refused.value.code == 2
    assert f"argument {flags[0]}: " in capsys.readouterr().err
