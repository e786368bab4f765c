"""A run of `kakeya bench session` from its start to its end, which may come early."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from kakeya._transport import _retry
from kakeya.bench import progress
from kakeya.bench.prompts import NoPrompts
from kakeya.bench.session import player
from kakeya.errors import NoCapacity
from tests.unit.sdk.bench.playing import SHORT, Outcome, Play
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails, passes

Start = Callable[..., "subprocess.Popen[str]"]
LONG = (*SHORT, "--turns", "100000", "--turn-spacing-s", "0.02", "--checkpoint-s", "0.1")
"""A run that does not end by itself as long as a test waits."""


@pytest.fixture
def start(flags: list[str]) -> Iterator[Start]:
    """Starts the command as a process of its own."""
    started: list[subprocess.Popen[str]] = []

    def start(*further: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "kakeya", "bench", "session", *flags, *further]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def report_json(tmp_path: Path) -> Path:
    return tmp_path / "report" / "report.json"


def read(file: Path) -> dict[str, Any]:
    """A report, which is whole at any time; empty where there is none yet."""
    if not file.exists():
        return {}
    document: dict[str, Any] = json.loads(file.read_text())
    return document


def sends(number: signal.Signals, turn: int, runtime: ScriptedRuntime, process_id: int | None = None) -> None:
    """In the middle of a turn the bench gets a signal, and no answer."""
    signals = iter([number])  # the turns of others may be held, too

    def send() -> None:
        for signal_number in signals:
            os.kill(os.getpid() if process_id is None else process_id, signal_number)

    def fault(context: grpc.ServicerContext) -> None:
        runtime.on_hold = send
        runtime.hold_after = 0

    runtime.before["Generate"] += [*[passes] * (turn - 1), fault]


def test_a_run_is_reported(play: Play, runtime: ScriptedRuntime) -> None:
    outcome = play(*SHORT, "--turns", "12", "--sessions", "2")
    assert outcome.document["state"] == "complete"
    played = {(turn["session"], turn["index"]) for turn in outcome.turns}
    assert played == {(session, index) for session in range(2) for index in range(1, 13)}
    assert len(outcome.turns) == 24
    assert (outcome.gate("kv_bounded")["outcome"], outcome.gate("errors")["outcome"]) == ("passed", "passed")
    assert runtime.sessions == {}


class TestInterrupted:
    """By Ctrl-C, by SIGTERM, by a kill that nobody can heed."""

    def test_in_the_middle_of_a_turn(self, play: Play, runtime: ScriptedRuntime) -> None:
        sends(signal.SIGTERM, 4, runtime)
        outcome = play(*LONG, "--exact", "--sessions", "2", "--turn-spacing-s", "0")
        assert outcome.status == 143
        assert outcome.document["state"] == "interrupted"
        assert 2 <= len(outcome.turns) < 10
        assert all(turn["error"] is None for turn in outcome.turns)
        assert outcome.gate("exact")["reason"] == "the run was interrupted"
        runtime.wait_for(lambda: runtime.num_cancelled >= 1)
        assert runtime.sessions == {}
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

    def test_while_the_transcript_is_replayed(self, play: Play, runtime: ScriptedRuntime) -> None:
        sends(signal.SIGTERM, 5, runtime)
        outcome = play(*SHORT, "--turns", "3", "--exact")
        assert (outcome.status, outcome.document["state"], len(outcome.turns)) == (143, "interrupted", 3)
        assert runtime.sessions == {}

    def test_by_ctrl_c(self, start: Start, runtime: ScriptedRuntime, report_json: Path) -> None:
        process = start(*LONG)
        sends(signal.SIGINT, 4, runtime, process.pid)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 130
        assert "3 turns, 9 tokens in, 6 out, 36 evicted (interrupted)" in out
        assert err == ""
        document = read(report_json)
        assert document["state"] == "interrupted"
        assert [turn["index"] for turn in document["turns"]] == [1, 2, 3]
        assert (report_json.parent / "report.html").exists()
        runtime.wait_for(lambda: runtime.sessions == {})

    def test_by_kill(self, start: Start, runtime: ScriptedRuntime, report_json: Path) -> None:
        """What was found so far is on disk, whole."""
        process = start(*LONG, "--checkpoint-s", "0.2")
        runtime.wait_for(lambda: len(read(report_json).get("turns", ())) > 5)
        process.kill()
        assert process.wait(10) == -signal.SIGKILL
        document = read(report_json)
        assert document["state"] == "running"
        num_turns = len(document["turns"])
        assert [turn["index"] for turn in document["turns"]] == [*range(1, num_turns + 1)]
        assert document["agg"]["num_turns"] == num_turns
        assert len(runtime.requests["Generate"]) - num_turns < 40, "as of a few tenths of a second ago"


def test_there_is_a_report_before_the_first_turn(play: Play, runtime: ScriptedRuntime, report_json: Path) -> None:
    found: list[dict[str, Any]] = []
    runtime.before["AppendTokens"].append(lambda context: found.append(read(report_json)))
    play(*SHORT, "--turns", "1")
    assert (found[0]["state"], found[0]["turns"], found[0]["model"]["name"]) == ("running", [], "counter")


def test_a_lost_runtime_loses_no_report(play: Play, runtime: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns fail, the session cannot be closed: what was measured is there all the same."""
    monkeypatch.setattr(_retry, "_FIRST_BACKOFF_SECONDS", 0.001)
    monkeypatch.setattr(player, "MAX_ERRORS_IN_A_ROW", 2)
    runtime.before["Generate"] += [passes, passes, lambda context: threading.Thread(target=runtime.stop).start()]
    outcome = play(*SHORT, "--turns", "9")
    assert (outcome.status, outcome.document["state"]) == (1, "given_up")
    assert [turn["error"] is None for turn in outcome.turns] == [True, True, False, False]
    assert outcome.turns[3]["error"].startswith("ConnectionFailed: ")
    assert outcome.err.startswith("a session was not closed and will expire: ")


def test_sessions_that_cannot_all_be_opened_are_closed(play: Play, runtime: ScriptedRuntime) -> None:
    runtime.before["CreateSession"] += [passes, passes, fails("NO_CAPACITY")]
    with pytest.raises(NoCapacity):
        play(*SHORT, "--turns", "1", "--sessions", "3")
    assert len(runtime.requests["CloseSession"]) == 2
    assert runtime.sessions == {}


def test_what_is_said_runs_out(play: Play, runtime: ScriptedRuntime, template_dir: Path, tmp_path: Path) -> None:
    """The file of messages is gone when a second conversation begins: the error comes as itself."""
    messages = tmp_path / "prompts.txt"
    messages.write_text("What?\n")
    runtime.before["Generate"] += [lambda context: messages.unlink(), lambda context: runtime.sessions.clear()]
    with pytest.raises(NoPrompts, match="No such file"):
        play("--tokenizer", str(template_dir), "--prompts", str(messages), "--turns", "5", "--sessions", "2")
    assert runtime.sessions == {}


def test_the_place_of_the_report_goes(play: Play, runtime: ScriptedRuntime, report_json: Path) -> None:
    """It may come back, so the run goes on, and what cannot be written meanwhile is said."""

    def take_away(_: object) -> None:  # in one step: the report may be being written
        report_json.parent.rename(report_json.parent.with_name("aside"))

    runtime.before["Generate"] += [passes, take_away]
    runtime.token_seconds = 0.01
    outcome = play(*SHORT, "--turns", "20", "--checkpoint-s", "0.02")
    assert "the report so far is not written: " in outcome.err
    assert "No such file" in outcome.err
    assert runtime.sessions == {}


class TestProgress:
    """How far it is, and what the last turn was like."""

    @pytest.fixture(autouse=True)
    def at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)

    def lines(self, outcome: Outcome) -> list[str]:
        return outcome.err.splitlines()

    def test_by_turns(self, play: Play, runtime: ScriptedRuntime) -> None:
        runtime.before["Generate"] += [passes, fails("INTERNAL")]
        first, second, *_, fourth, last = self.lines(play(*SHORT, "--turns", "4", "--exact"))
        assert first.startswith("session: 25%, about ")
        assert first.endswith(" s left; 1 turns, history 5, 5,120 bytes live")
        assert second.endswith("; turn 2 failed: Internal: scripted INTERNAL")
        assert fourth.startswith("session: 100%, about 0 s left; 4 turns, history 18, ")
        assert last.endswith("; replaying the transcript")

    def test_by_time(self, play: Play) -> None:
        *_, last = self.lines(play(*SHORT, "--duration-s", "0.4", "--turn-spacing-s", "0.1", "--turns", "1000"))
        share = int(last.removeprefix("session: ").partition("%")[0])
        assert 70 <= share <= 100

    def test_whichever_is_over_first(self, play: Play) -> None:
        first, *_ = self.lines(play(*SHORT, "--duration-s", "1000", "--turns", "2", "--sessions", "2"))
        assert first.startswith("session: 25%, about ")
