"""`kakeya bench load` as a whole: its levels, its sessions, its files, its exit status."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest

from kakeya_bench.load import page
from kakeya_bench.report import files, progress
from tests.unit.bench.conversation.playing import Play
from tests.unit.bench.load.sweeping import Always
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import Fault, ScriptedRuntime, fails, fails_plainly, passes, stalls


def test_the_command_leaves_a_report(bench: Play, tmp_path: Path) -> None:
    outcome = bench("--sessions", "1,2")
    assert (outcome.status, outcome.err, outcome.document["state"]) == (0, "", "complete")
    assert outcome.out.splitlines()[-1] == f"report: {tmp_path / 'report'}"
    assert "The largest level at which 90 % of the turns were in time: 2 sessions." in outcome.out
    drawn = {path.name: path.read_bytes() for path in (tmp_path / "report").iterdir() if path.name != "load.json"}
    assert drawn == page.files(outcome.document)


def test_each_level_has_sessions_of_its_own(sweep: Play, runtime: ScriptedRuntime) -> None:
    held: list[int] = []
    runtime.before["AppendTokens"] = Always([lambda context: held.append(len(runtime.sessions))])
    outcome = sweep("--sessions", "1,3")
    assert set(held) == {1, 3}, "a level is over before the next one opens"
    assert len(runtime.requests["CreateSession"]) == len(runtime.requests["CloseSession"]) == 4
    for level, number in zip(outcome.levels, (1, 3), strict=True):
        assert (level["num_sessions"], level["num_opened"], level["state"]) == (number, number, "complete")
        assert {turn["session"] for turn in level["turns"]} == set(range(number))
        assert level["why_not_closed"] == level["refusal"] == ""


def test_what_is_asked_and_what_is_known(sweep: Play, runtime: ScriptedRuntime, admin: ScriptedAdmin) -> None:
    admin.workers[0].reported_kv_live_bytes = 4_321
    outcome = sweep("--sessions", "2", "--sink", "2", "--window", "9", "--model", "counter")
    asked, _ = runtime.requests["CreateSession"]
    assert (asked.sink, asked.window, asked.model, asked.client_label) == (2, 9, "counter", "kakeya bench load")
    assert outcome.document["schema"] == "kakeya.bench.load/1"
    assert (outcome.document["model"]["name"], outcome.document["model"]["worker"]["dtype"]) == ("counter", "float32")
    (level,) = outcome.levels
    held = {turn["session"]: turn["kv_live_bytes"] for turn in level["turns"]}
    assert level["kv"] == {"sessions_bytes": sum(held.values()), "workers_bytes": 4_321, "why_not": ""}


@pytest.mark.parametrize(
    ("refuses", "says"),
    [
        (fails("NO_CAPACITY"), "NoCapacity: scripted NO_CAPACITY"),
        (fails("QUOTA_EXCEEDED"), "QuotaExceeded: scripted QUOTA_EXCEEDED"),
        (fails_plainly(grpc.StatusCode.DEADLINE_EXCEEDED), "DeadlineExceeded: "),  # a queue that takes too long
    ],
)
def test_a_level_is_played_with_those_who_got_in(
    sweep: Play, runtime: ScriptedRuntime, refuses: Fault, says: str
) -> None:
    runtime.before["CreateSession"] += [passes, passes, refuses]
    outcome = sweep("--sessions", "4")
    (level,) = outcome.levels
    assert (level["num_sessions"], level["num_opened"], level["state"]) == (4, 2, "complete")
    assert level["refusal"].startswith(says)
    assert {turn["session"] for turn in level["turns"]} == {0, 1}
    assert len(runtime.requests["CreateSession"]) == 3, "nobody waits in a queue again"
    assert (outcome.status, runtime.sessions) == (0, {})
    assert outcome.document["largest_num_sessions_within_limits"] is None, "two are not four"


def test_a_level_that_nobody_gets_into_cannot_be_judged(sweep: Play, runtime: ScriptedRuntime) -> None:
    runtime.before["CreateSession"] += [fails("NO_CAPACITY")]
    outcome = sweep("--sessions", "1,2", "--judge-goodput", "--duration-s", "30")
    assert [level["state"] for level in outcome.levels] == ["refused", "complete"]
    assert (outcome.levels[0]["turns"], outcome.document["model"]["name"]) == ([], "counter")
    assert outcome.gate("errors")["reason"] == "1 session: not one got in: NoCapacity: scripted NO_CAPACITY"
    assert (outcome.gate("goodput")["outcome"], outcome.status) == ("passed", 2)


def test_a_level_that_cannot_be_opened_ends_the_sweep(sweep: Play, runtime: ScriptedRuntime) -> None:
    runtime.before["CreateSession"] += [passes, passes, fails("UNAUTHENTICATED")]
    outcome = sweep("--sessions", "1,2,4")
    assert (outcome.status, outcome.document["state"], runtime.sessions) == (2, "broken_off", {})
    assert [level["state"] for level in outcome.levels] == ["complete", "broken_off"]
    assert outcome.levels[0]["num_turns"] > 0 == outcome.levels[1]["num_turns"]
    assert outcome.document["why_broken_off"] == "scripted UNAUTHENTICATED; set KAKEYA_API_KEY or pass --api-key-file"
    assert outcome.gate("errors")["reason"] == "2 sessions: the level did not come to its end"


def test_where_the_first_level_cannot_be_opened_nothing_is_reported(bench: Play, runtime: ScriptedRuntime) -> None:
    runtime.before["CreateSession"] += [passes, fails("INVALID_FIELD", field="sink")]
    outcome = bench("--sessions", "2")
    assert (outcome.status, outcome.out, outcome.document, runtime.sessions) == (2, "", {}, {})
    assert outcome.err == "kakeya bench load: error: scripted INVALID_FIELD\n"


def test_after_each_level_there_is_a_report(sweep: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[dict[str, Any]] = []
    write = files.write_json

    def keeps(path: Path, document: dict[str, Any]) -> None:
        write(path, document)
        kept.append(json.loads(path.read_text()))
        assert threading.current_thread() is not threading.main_thread(), "the loop goes on"

    monkeypatch.setattr(files, "write_json", keeps)
    sweep("--sessions", "1,2")
    assert [document["state"] for document in kept] == ["running", "running"]
    assert [[level["state"] for level in document["levels"]] for document in kept] == [["complete"], ["complete"] * 2]


def test_a_session_that_cannot_be_closed_is_said(sweep: Play, runtime: ScriptedRuntime) -> None:
    runtime.before["CloseSession"] += [fails("INTERNAL")]
    outcome = sweep("--sessions", "2")
    assert (outcome.status, outcome.levels[0]["why_not_closed"]) == (0, "Internal: scripted INTERNAL")
    assert len(runtime.sessions) == 1, "the other one is"


def test_a_template_that_refuses_answers(bench: Play, runtime: ScriptedRuntime, tmp_path: Path) -> None:
    """Which shows with the second message only, and before a session is opened."""
    tiny_tokenizer.save(tmp_path, template=True)
    refuses = "{% if messages[1] is defined %}{{ raise_exception('one at a time') }}{% endif %}"
    (tmp_path / "chat_template.jinja").write_text(f"{refuses}{{{{ messages[0].content }}}}")
    outcome = bench("--tokenizer", str(tmp_path))
    assert (outcome.status, outcome.document, runtime.requests["CreateSession"]) == (2, {}, [])
    assert "the chat template refuses messages of user, assistant: one at a time" in outcome.err


def test_progress_is_told(sweep: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    lines = sweep("--sessions", "1,2").err.splitlines()
    told = [line.removeprefix("load: ") for line in lines if "level of" in line]
    assert told[0].endswith("level of 1: 1 turns")
    shares = [(int(line.partition("%")[0]), line.partition("level of ")[2][0]) for line in told]
    assert shares == sorted(shares)
    assert all(share <= 50 if number == "1" else 50 <= share <= 100 for share, number in shares)


class TestInterrupted:
    """By Ctrl-C or SIGTERM: what there is is reported, and no session stays open."""

    @pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_in_a_turn(self, sweep: Play, runtime: ScriptedRuntime, number: signal.Signals, status: int) -> None:
        def interrupts_the_second_level(context: grpc.ServicerContext) -> None:
            if len(runtime.sessions) == 3 and not came:
                came.append(number)
                interrupts(runtime, stalls, number)(context)

        came: list[signal.Signals] = []
        runtime.before["Generate"] = Always([interrupts_the_second_level])
        outcome = sweep("--sessions", "1,3,9")
        assert (outcome.status, outcome.document["state"], runtime.sessions) == (status, "interrupted", {})
        assert [level["state"] for level in outcome.levels] == ["complete", "broken_off"]
        assert outcome.levels[0]["num_turns"] > 0
        assert (outcome.levels[1]["measured_s"] > 0, outcome.levels[1]["kv"]) == (True, None)

    @pytest.mark.parametrize("then", [stalls, passes, fails("INTERNAL")], ids=["waits", "opens", "fails"])
    def test_while_a_session_is_opened(self, sweep: Play, runtime: ScriptedRuntime, then: Fault) -> None:
        runtime.before["CreateSession"] += [passes, interrupts(runtime, then)]
        outcome = sweep("--sessions", "3")
        assert (outcome.status, outcome.document["state"], outcome.err) == (130, "interrupted", "")
        (level,) = outcome.levels
        assert (level["num_opened"], level["state"], level["turns"]) == (1, "broken_off", [])
        assert len(runtime.requests["CreateSession"]) == 2
        runtime.wait_for(lambda: runtime.sessions == {})

    def test_while_sessions_are_closed(self, sweep: Play, runtime: ScriptedRuntime) -> None:
        runtime.before["CloseSession"] += [interrupts(runtime, passes)]
        outcome = sweep("--sessions", "3,4")
        assert (outcome.status, outcome.document["state"], runtime.sessions) == (130, "interrupted", {})
        (level,) = outcome.levels
        assert (level["num_opened"], level["state"], level["num_turns"] > 0) == (3, "broken_off", True)

    def test_before_the_first_level(self, sweep: Play, runtime: ScriptedRuntime) -> None:
        runtime.before["ListModels"] += [interrupts(runtime, passes)]
        outcome = sweep("--sessions", "2")
        assert (outcome.status, outcome.document["state"], runtime.sessions) == (130, "interrupted", {})
        assert all((level["state"], level["turns"]) == ("broken_off", []) for level in outcome.levels)


def interrupts(runtime: ScriptedRuntime, then: Fault, number: signal.Signals = signal.SIGINT) -> Fault:
    """A signal comes, and is heeded, while a call runs, which goes on then."""

    def fault(context: grpc.ServicerContext) -> None:
        before = signal.getsignal(number)
        os.kill(os.getpid(), number)
        runtime.wait_for(lambda: signal.getsignal(number) is not before)
        then(context)

    return fault
