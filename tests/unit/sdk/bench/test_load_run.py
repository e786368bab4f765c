"""`kakeya bench load` as a whole: its levels, its sessions, its files, its exit status."""

import json
import os
import sys
import threading
from pathlib import Path

import pytest

from kakeya.bench import report_file
from kakeya.bench.load import page
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.bench.sweeping import SHORT, Always, Sweep, passes, sweeper
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import FINGERPRINT, SINK, WINDOW, ScriptedRuntime, fails, stalls

FILES = ["load.html", "load.json", "load.png"]


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take longer than these levels; see test_load_page.py."""
    monkeypatch.setattr(page, "files", lambda document: dict.fromkeys(("load.html", "load.png"), b"drawn"))


@pytest.fixture
def sweep(runtime: ScriptedRuntime, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Sweep:
    return sweeper(runtime, tmp_path / "report", capsys)


def test_each_level_has_sessions_of_its_own(sweep: Sweep, runtime: ScriptedRuntime) -> None:
    outcome = sweep(*SHORT, "--sessions", "1,2,4")
    assert (outcome.status, outcome.document["state"], outcome.names) == (0, "complete", FILES)
    assert [(level["num_sessions"], level["num_opened"], level["state"]) for level in outcome.levels] == [
        (1, 1, "complete"), (2, 2, "complete"), (4, 4, "complete"),
    ]  # fmt: skip
    assert len(runtime.requests["CreateSession"]) == len(runtime.requests["CloseSession"]) == 7
    assert runtime.sessions == {}
    for level in outcome.levels:
        assert {turn["session"] for turn in level["turns"]} == set(range(level["num_sessions"]))
        assert level["why_not_closed"] == level["refusal"] == ""


def test_a_level_is_over_before_the_next_one_opens(sweep: Sweep, runtime: ScriptedRuntime) -> None:
    held: list[int] = []

    def counts(context: object) -> None:
        held.append(len(runtime.sessions))

    runtime.before["AppendTokens"] = Always([counts])
    sweep(*SHORT, "--sessions", "1,3")
    assert set(held) == {1, 3}


def test_what_the_report_is_about(sweep: Sweep, admin: ScriptedAdmin) -> None:
    admin.workers[0].reported_kv_live_bytes = 4_321
    document = sweep(*SHORT, "--sessions", "2", "--sink", "2", "--goal-share", "0.8").document
    assert document["schema"] == "kakeya.bench.load/1"
    assert document["model"]["name"] == "counter"
    assert (document["model"]["sink"], document["model"]["window"]) == (SINK, WINDOW)
    assert document["model"]["fingerprint"] == FINGERPRINT
    assert document["model"]["worker"]["worker_id"] == "scripted"
    assert document["environment"]["num_processors"] == os.cpu_count()
    options = document["options"]
    assert (options["numbers_of_sessions"], options["sink"], options["goal_share"]) == ([2], 2, 0.8)
    assert options["limits"] == {"time_to_first_token_seconds": 2.0, "time_per_output_token_seconds": 0.2}
    assert (options["duration_seconds"], options["warm_up_seconds"]) == (0.25, 0.0)
    kv = document["levels"][0]["kv"]
    lengths = {turn["session"]: turn["history_length"] for turn in document["levels"][0]["turns"]}
    held = sum(min(length, SINK + WINDOW) for length in lengths.values())
    assert kv == {"sessions_bytes": held * 1024, "workers_bytes": 4_321, "why_not": ""}


def test_a_session_is_asked_for_as_the_flags_say(sweep: Sweep, runtime: ScriptedRuntime) -> None:
    sweep(*SHORT, "--sessions", "1", "--sink", "2", "--window", "9", "--model", "counter")
    (asked,) = runtime.requests["CreateSession"]
    assert (asked.sink, asked.window, asked.model, asked.client_label) == (2, 9, "counter", "kakeya bench load")


@pytest.mark.parametrize("reason", ["NO_CAPACITY", "QUEUE_TIMED_OUT", "QUEUE_FULL", "QUOTA_EXCEEDED"])
def test_a_level_is_played_with_those_who_got_in(sweep: Sweep, runtime: ScriptedRuntime, reason: str) -> None:
    runtime.before["CreateSession"] += [passes, passes, fails(reason)]
    outcome = sweep(*SHORT, "--sessions", "4")
    (level,) = outcome.levels
    assert (level["num_sessions"], level["num_opened"], level["state"]) == (4, 2, "complete")
    assert level["refusal"].endswith(f": scripted {reason}")
    assert {turn["session"] for turn in level["turns"]} == {0, 1}
    assert len(runtime.requests["CreateSession"]) == 3, "nobody waits in a queue again"
    assert runtime.sessions == {}
    assert outcome.status == 0
    assert outcome.document["largest_num_sessions_within_limits"] is None, "two are not four"
    assert f"of 4 sessions 2 got in; the next: {level['refusal']}" in outcome.out
    assert "  2 of 4" in outcome.out


def test_a_queue_that_takes_too_long(sweep: Sweep, runtime: ScriptedRuntime) -> None:
    runtime.before["CreateSession"] += [passes, stalls]
    (level,) = sweep(*SHORT, "--sessions", "2", "--timeout-s", "0.5").levels
    assert (level["num_opened"], level["refusal"].partition(":")[0]) == (1, "DeadlineExceeded")


def test_a_level_that_nobody_gets_into_cannot_be_judged(sweep: Sweep, runtime: ScriptedRuntime) -> None:
    runtime.before["CreateSession"] += [fails("NO_CAPACITY")]
    outcome = sweep(*SHORT, "--sessions", "1,2", "--judge-goodput", "--think-time-s", "0")
    assert [level["state"] for level in outcome.levels] == ["refused", "complete"]
    assert outcome.levels[0]["turns"] == []
    assert outcome.gate("errors") == ("undecided", "1 session: not one got in: NoCapacity: scripted NO_CAPACITY")
    assert outcome.gate("goodput")[0] == "passed"
    assert outcome.document["model"]["name"] == "counter"
    assert outcome.status == 2


def test_where_nobody_ever_gets_in_there_is_still_a_report(sweep: Sweep, runtime: ScriptedRuntime) -> None:
    runtime.before["CreateSession"] = Always([fails("NO_CAPACITY")])
    outcome = sweep(*SHORT, "--sessions", "1,2")
    assert (outcome.status, outcome.document["state"], outcome.document["model"]) == (2, "complete", None)
    assert outcome.names == FILES


def test_a_level_that_cannot_be_opened_ends_the_sweep(sweep: Sweep, runtime: ScriptedRuntime) -> None:
    runtime.before["CreateSession"] += [passes, passes, fails("UNAUTHENTICATED")]
    outcome = sweep(*SHORT, "--sessions", "1,2,4")
    assert (outcome.status, outcome.document["state"], outcome.names) == (2, "broken_off", FILES)
    assert [level["state"] for level in outcome.levels] == ["complete", "broken_off"]
    assert outcome.levels[0]["num_turns"] > 0
    assert outcome.levels[1]["turns"] == []
    why = outcome.document["why_broken_off"]
    assert why == "scripted UNAUTHENTICATED; set KAKEYA_API_KEY or pass --api-key-file"
    assert f"broken off: {why}\n" in outcome.out
    assert outcome.gate("errors") == ("undecided", "2 sessions: the level did not come to its end")
    assert runtime.sessions == {}


def test_where_the_first_session_cannot_be_opened_nothing_is_reported(sweep: Sweep, runtime: ScriptedRuntime) -> None:
    runtime.before["CreateSession"] += [fails("INVALID_FIELD", field="sink")]
    outcome = sweep(*SHORT, "--sessions", "1")
    assert (outcome.status, outcome.names, outcome.out) == (2, [], "")
    assert outcome.err == "kakeya bench load: error: scripted INVALID_FIELD\n"


def test_after_each_level_there_is_a_report(
    sweep: Sweep, runtime: ScriptedRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[dict[str, object]] = []
    write = report_file.write_json

    def keeps(path: Path, document: dict[str, object]) -> None:
        write(path, document)
        kept.append(json.loads(path.read_text()))
        assert threading.current_thread() is not threading.main_thread() or len(kept) == 3, "the loop goes on"

    monkeypatch.setattr(report_file, "write_json", keeps)
    sweep(*SHORT, "--sessions", "1,2")
    assert [document["state"] for document in kept] == ["running", "running", "complete"]
    assert [[level["num_sessions"] for level in document["levels"]] for document in kept] == [[1], [1, 2], [1, 2]]  # type: ignore[attr-defined]


def test_a_directory_that_is_gone(sweep: Sweep, runtime: ScriptedRuntime, tmp_path: Path) -> None:
    def removes(context: object) -> None:
        (tmp_path / "report").rmdir()

    runtime.before["CloseSession"] += [removes]
    outcome = sweep(*SHORT, "--sessions", "1")
    assert outcome.status == 2
    assert outcome.err == f"kakeya bench load: error: {tmp_path / 'report' / 'load.json'}: No such file or directory\n"
    assert runtime.sessions == {}


def test_a_session_that_cannot_be_closed_is_said(sweep: Sweep, runtime: ScriptedRuntime) -> None:
    runtime.before["CloseSession"] += [fails("INTERNAL")]
    outcome = sweep(*SHORT, "--sessions", "2")
    assert outcome.status == 0
    assert outcome.levels[0]["why_not_closed"] == "Internal: scripted INTERNAL"
    assert "of 2 sessions not all were closed, and will expire: Internal: scripted INTERNAL\n" in outcome.out
    assert len(runtime.sessions) == 1, "the other one is"


@pytest.mark.parametrize("prompts", ["none", "empty"])
def test_prompts_that_cannot_be_had(sweep: Sweep, runtime: ScriptedRuntime, template_dir: Path, prompts: str) -> None:
    file = template_dir / prompts
    if prompts == "empty":
        file.write_text("\n")
    outcome = sweep(*SHORT[2:], "--tokenizer", str(template_dir), "--prompts", str(file))
    assert (outcome.status, outcome.names) == (2, [])
    assert outcome.err.startswith(f"kakeya bench load: error: {file}")
    assert runtime.requests["CreateSession"] == []


def test_a_template_that_refuses_answers(sweep: Sweep, runtime: ScriptedRuntime, tmp_path: Path) -> None:
    """Which shows with the second message only."""
    tiny_tokenizer.save(tmp_path, template=True)
    refuses = (
        "{% if messages[1] is defined %}{{ raise_exception('one at a time') }}{% endif %}{{ messages[0].content }}"
    )
    (tmp_path / "chat_template.jinja").write_text(refuses)
    outcome = sweep(*SHORT[2:], "--tokenizer", str(tmp_path))
    assert (outcome.status, outcome.names) == (2, [])
    assert "the chat template refuses messages of user, assistant: one at a time" in outcome.err
    assert runtime.requests["CreateSession"] == []


def test_another_models_tokenizer(sweep: Sweep, runtime: ScriptedRuntime, tmp_path: Path) -> None:
    folder = tiny_tokenizer.save_with_words(tmp_path / "larger", 1000)
    outcome = sweep(*SHORT[2:], "--tokenizer", str(folder))
    assert (outcome.status, outcome.names) == (2, [])
    assert "is another model's (1,258 ids, and the model knows 1,000)" in outcome.err
    assert runtime.sessions == {}, "it was opened, and closed"


def test_no_runtime(tmp_path: Path, capsys: pytest.CaptureFixture[str], runtime: ScriptedRuntime) -> None:
    runtime.stop()
    outcome = sweeper(runtime, tmp_path / "report", capsys)(*SHORT)
    assert (outcome.status, outcome.names) == (2, [])
    assert outcome.err.startswith(f"kakeya bench load: error: no runtime answers at {runtime.address} ")


def test_without_the_extra_the_cure_is_named(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    outcome = sweep(*SHORT)
    assert outcome.status == 2
    assert outcome.err.endswith("install it with: pip install 'kakeya[bench]'\n")


def test_a_key_that_is_no_operators_costs_the_workers_figures_only(sweep: Sweep, admin: ScriptedAdmin) -> None:
    admin.before["ListWorkers"] = Always([fails("PERMISSION_DENIED")])
    outcome = sweep(*SHORT, "--sessions", "1")
    assert outcome.status == 0
    assert outcome.document["model"]["worker"] == {}
    kv = outcome.levels[0]["kv"]
    assert kv["sessions_bytes"] > 0
    assert kv["workers_bytes"] is None


def test_progress_is_told(sweep: Sweep, runtime: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kakeya.bench.progress.LINE_SECONDS", 0.0)
    told = [line for line in sweep(*SHORT, "--sessions", "1,2").err.splitlines() if line]
    assert told[0].startswith("load: ")
    assert told[0].endswith("level of 1: 1 turns")
    shares = [int(line.removeprefix("load: ").partition("%")[0]) for line in told]
    assert shares == sorted(shares)
    assert all(share <= 50 for share, line in zip(shares, told, strict=True) if "level of 1" in line)
    assert min(share for share, line in zip(shares, told, strict=True) if "level of 2" in line) >= 50
    assert max(shares) <= 100


def test_the_summary_has_a_line_for_each_level(sweep: Sweep, admin: ScriptedAdmin, tmp_path: Path) -> None:
    admin.workers[0].reported_kv_live_bytes = 3 << 20
    outcome = sweep(*SHORT, "--sessions", "1,2", "--think-time-s", "0")
    first, limits, heading, one, two, largest, errors, goodput, where = outcome.out.splitlines()
    assert first == f"counter: sink {SINK}, window {WINDOW} (complete)"
    assert "(TTFT) up to 2 s" in limits
    assert "(TPOT) up to 0.2 s" in limits
    for line, level in zip((one, two), outcome.levels, strict=True):
        assert len(line) == len(heading)
        assert line.split() == [
            str(level["num_sessions"]),
            f"{level['num_turns']:,}",
            "0",
            f"{level['goodput_turns_per_s']:,.2f}",
            "100%",
            *(f"{level['time_to_first_token_s'][name] * 1e3:,.1f}" for name in ("p50", "p95")),
            *(f"{level['time_per_output_token_s'][name] * 1e3:,.1f}" for name in ("p50", "p95")),
            f"{level['tokens_out_per_s']:,.1f}",
            f"{level['kv']['sessions_bytes'] / 2**20:.2f}",
            "3.00",
        ]
    assert largest == "largest level at which 90 % of the turns met both limits: 2 sessions"
    assert errors.startswith("passed     errors: none of ")
    assert goodput == "skipped    goodput: not asked for"
    assert where == f"report: {tmp_path / 'report'}"


def test_the_summary_of_a_sweep_that_found_nothing(sweep: Sweep, runtime: ScriptedRuntime) -> None:
    runtime.before["CreateSession"] = Always([fails("NO_CAPACITY")])
    lines = sweep(*SHORT, "--sessions", "2").out.splitlines()
    assert lines[2].split() == ["0", "of", "2", "0", "0", *["-"] * 9]
    assert "at no level 90 % of the turns met both limits" in lines
