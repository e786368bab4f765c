"""Ctrl-C and SIGTERM during `kakeya bench load`: the report is written, and no session stays open."""

import os
import signal
import time
from pathlib import Path

import grpc
import pytest

from kakeya.bench.load import page
from tests.unit.sdk.bench.sweeping import SHORT, Always, Sweep, passes, sweeper
from tests.unit.sdk.scripted_runtime import Fault, ScriptedRuntime, fails, stalls

FILES = ["load.html", "load.json", "load.png"]


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take longer than these levels; see test_load_page.py."""
    monkeypatch.setattr(page, "files", lambda document: dict.fromkeys(("load.html", "load.png"), b"drawn"))


@pytest.fixture
def sweep(runtime: ScriptedRuntime, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Sweep:
    return sweeper(runtime, tmp_path / "report", capsys)


def interrupts(number: signal.Signals) -> Fault:
    """A signal comes while a call runs, which then goes on until its client has gone."""

    def fault(context: grpc.ServicerContext) -> None:
        os.kill(os.getpid(), number)
        stalls(context)

    return fault


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_the_middle(sweep: Sweep, runtime: ScriptedRuntime, number: signal.Signals, status: int) -> None:
    def interrupts_the_second_level(context: grpc.ServicerContext) -> None:
        if len(runtime.sessions) == 3 and not sent:
            sent.append(number)
            interrupts(number)(context)

    sent: list[signal.Signals] = []
    runtime.before["Generate"] = Always([interrupts_the_second_level])
    outcome = sweep(*SHORT, "--sessions", "1,3,9")
    assert (outcome.status, outcome.document["state"], outcome.names) == (status, "interrupted", FILES)
    assert [level["state"] for level in outcome.levels] == ["complete", "broken_off"]
    assert outcome.levels[0]["num_turns"] > 0
    assert outcome.levels[1]["measured_s"] > 0
    assert outcome.levels[1]["kv"] is None
    assert "the level of 3 was broken off" in outcome.out
    assert "the level of 1 was broken off" not in outcome.out
    assert runtime.sessions == {}
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_while_a_session_waits_in_the_queue(sweep: Sweep, runtime: ScriptedRuntime) -> None:
    runtime.before["CreateSession"] += [passes, interrupts(signal.SIGINT)]
    outcome = sweep(*SHORT, "--sessions", "2")
    assert (outcome.status, outcome.document["state"]) == (130, "interrupted")
    (level,) = outcome.levels
    assert (level["num_opened"], level["state"], level["turns"]) == (1, "broken_off", [])
    assert runtime.sessions == {}


def test_a_signal_while_a_session_is_opened(sweep: Sweep, runtime: ScriptedRuntime) -> None:
    def interrupts_and_goes_on(context: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)

    runtime.before["CreateSession"] += [passes, interrupts_and_goes_on]
    outcome = sweep(*SHORT, "--sessions", "3")
    assert outcome.status == 130
    assert len(runtime.requests["CreateSession"]) == 2
    assert runtime.sessions == {}, "that one, too, was closed"


def test_a_signal_while_a_session_fails_to_open(sweep: Sweep, runtime: ScriptedRuntime) -> None:
    def interrupts_and_fails(context: grpc.ServicerContext) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        fails("INTERNAL")(context)

    runtime.before["CreateSession"] += [passes, interrupts_and_fails]
    outcome = sweep(*SHORT, "--sessions", "2")
    assert (outcome.status, outcome.document["state"], outcome.err) == (130, "interrupted", "")
    assert runtime.sessions == {}


def test_a_signal_while_sessions_are_closed(sweep: Sweep, runtime: ScriptedRuntime) -> None:
    def interrupts_and_goes_on(context: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)

    runtime.before["CloseSession"] += [interrupts_and_goes_on, lambda context: time.sleep(0.1)]
    outcome = sweep(*SHORT, "--sessions", "3,4")
    assert (outcome.status, outcome.document["state"]) == (130, "interrupted")
    (level,) = outcome.levels
    assert (level["num_opened"], level["state"]) == (3, "broken_off")
    assert level["num_turns"] > 0
    assert runtime.sessions == {}


def test_a_signal_before_the_first_level(sweep: Sweep, runtime: ScriptedRuntime) -> None:
    def interrupts_and_answers(context: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    runtime.before["ListModels"] += [interrupts_and_answers]
    outcome = sweep(*SHORT, "--sessions", "2")
    assert (outcome.status, outcome.document["state"], outcome.names) == (130, "interrupted", FILES)
    assert all((level["state"], level["turns"]) == ("broken_off", []) for level in outcome.levels)
    assert runtime.sessions == {}
