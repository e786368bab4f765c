"""A run of `kakeya bench session` from its start to its end, which may come early."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import matplotlib
import pytest

from kakeya._transport import _retry
from kakeya.errors import NoCapacity
from kakeya_bench.conversation.prompts import NoPrompts
from kakeya_bench.report import progress
from kakeya_bench.session import player
from tests.unit.bench.conversation.playing import SHORT, OwnClock, Play
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails, passes

Start = Callable[..., "subprocess.Popen[str]"]
LONG = (*SHORT, "--turns", "100000", "--turn-spacing-s", "0.02", "--checkpoint-s", "0.1")


@pytest.fixture
def start(flags: list[str]) -> Iterator[Start]:
    """Starts the command as a process of its own, which does not end by itself as long as a test waits."""
    with ExitStack() as started:

        def start() -> "subprocess.Popen[str]":
            command = [sys.executable, "-m", "kakeya", "bench", "session", *flags, *LONG]
            # matplotlib looks for fonts where it has no cache, and says so.
            environment = os.environ | {"MPLCONFIGDIR": matplotlib.get_cachedir()}
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)
            started.callback(process.communicate)
            started.callback(process.kill)
            return process

        yield start


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


def test_a_run_is_reported_from_before_its_first_turn_on(
    play: Play, runtime: ScriptedRuntime, report_json: Path
) -> None:
    early: list[dict[str, Any]] = []
    runtime.before["AppendTokens"].append(lambda context: early.append(read(report_json)))
    outcome = play(*SHORT, "--turns", "2")
    assert (early[0]["state"], early[0]["turns"], early[0]["model"]["name"]) == ("running", [], "counter")
    assert (outcome.document["state"], len(outcome.turns)) == ("complete", 2)


class TestInterrupted:
    """By Ctrl-C, by SIGTERM, by a kill that nobody can heed."""

    def test_in_the_middle_of_a_turn(self, play: Play, runtime: ScriptedRuntime) -> None:
        before = signal.getsignal(signal.SIGTERM)
        sends(signal.SIGTERM, 4, runtime)
        outcome = play(*LONG, "--exact", "--sessions", "2", "--turn-spacing-s", "0")
        assert (outcome.status, outcome.document["state"]) == (143, "interrupted")
        assert 2 <= len(outcome.turns) < 10
        assert all(turn["error"] is None for turn in outcome.turns)
        assert outcome.gate("exact")["reason"] == "the run was interrupted"
        runtime.wait_for(lambda: runtime.num_cancelled >= 1)
        assert runtime.sessions == {}
        assert signal.getsignal(signal.SIGTERM) is before

    def test_while_the_transcript_is_replayed(self, play: Play, runtime: ScriptedRuntime) -> None:
        sends(signal.SIGTERM, 5, runtime)
        outcome = play(*SHORT, "--turns", "3", "--exact")
        assert (outcome.status, outcome.document["state"], len(outcome.turns)) == (143, "interrupted", 3)
        assert runtime.sessions == {}

    def test_by_ctrl_c(self, start: Start, runtime: ScriptedRuntime, report_json: Path) -> None:
        process = start()
        sends(signal.SIGINT, 4, runtime, process.pid)
        out, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (130, "")
        assert "3 turns in 1 session, 0 of them failed. 9 tokens in, 6 out, 36 evicted. " in out
        document = read(report_json)
        assert document["state"] == "interrupted"
        assert [turn["index"] for turn in document["turns"]] == [1, 2, 3]
        assert (report_json.parent / "report.html").exists()
        runtime.wait_for(lambda: runtime.sessions == {})

    def test_by_kill(self, start: Start, runtime: ScriptedRuntime, report_json: Path) -> None:
        """What was found so far is on disk, whole."""
        process = start()
        runtime.wait_for(lambda: len(read(report_json).get("turns", ())) > 5)
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
        document = read(report_json)
        num_turns = len(document["turns"])
        assert (document["state"], document["agg"]["num_turns"]) == ("running", num_turns)
        assert [turn["index"] for turn in document["turns"]] == [*range(1, num_turns + 1)]
        assert num_turns <= len(runtime.requests["Generate"])


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
    directory = report_json.parent

    def take_away(context: grpc.ServicerContext) -> None:
        directory.rename(directory.with_name("aside"))  # in one step: the report may be being written
        directory.write_text("in the way")

    runtime.before["Generate"] += [passes, take_away]
    runtime.token_seconds = 0.01
    outcome = play(*SHORT, "--turns", "20", "--checkpoint-s", "0.02")
    assert f"the report so far is not written: {report_json}: " in outcome.err
    assert len(outcome.turns) == 20


def test_progress_by_turns(play: Play, runtime: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    runtime.before["Generate"] += [passes, fails("INTERNAL")]
    flags = ("--turns", "4", "--duration-s", "1000")  # whichever is over first
    first, second, *_, fourth, last = play(*SHORT, *flags, "--exact").err.splitlines()
    assert first.startswith("session: 25%, about ")
    assert first.endswith(" s left; 1 turn, history 5, 5,120 bytes live")
    assert second.endswith("; turn 2 failed: Internal: scripted INTERNAL")
    assert fourth.startswith("session: 100%, about 0 s left; 4 turns, history 18, ")
    assert last.endswith("; replaying the transcript")


def test_progress_by_time(
    play: Play, runtime: ScriptedRuntime, own_clock: OwnClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    runtime.before["Generate"] += [own_clock.takes(1.0)] * 4
    lines = play(*SHORT, "--duration-s", "4", "--turns", "1000").err.splitlines()
    assert [line.partition(",")[0] for line in lines] == [f"session: {share}%" for share in (25, 50, 75, 100)]
