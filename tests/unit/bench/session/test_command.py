"""`kakeya bench session` as it is typed: where it speaks, what it writes, how it exits."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from kakeya.cli.commands import commands
from kakeya_bench import command as benches
from kakeya_bench.report import progress
from kakeya_bench.session import command
from tests.unit.bench.conversation.playing import CONFIG, SHORT, Play, appended
from tests.unit.sdk import scripted_runtime, tiny_tokenizer
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails

SECRET = "kakeya_key_0123456789ab_" + "s" * 43
FEW = (*SHORT, "--turns", "2")
ENOUGH = (*SHORT, "--turns", "120", "--skip-gate", "prefill_bounded")
"""A run that every gate but that of time can judge: what time turns take is for a real runtime to say."""


def test_it_is_installed() -> None:
    assert commands.summary(commands.find(benches.GROUP)["session"]) == command.SUMMARY


def test_every_gate_is_passed_and_no_key_is_shown(
    bench: Play, runtime: ScriptedRuntime, admin: ScriptedAdmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAKEYA_API_KEY", SECRET)
    outcome = bench(*ENOUGH, "--exact")
    assert outcome.status == 0
    assert {name: gate["outcome"] for name, gate in outcome.document["gates"].items()} == {
        "kv_bounded": "passed",
        "rss_bounded": "passed",
        "prefill_bounded": "skipped",
        "errors": "passed",
        "exact": "passed",
    }
    assert outcome.document["state"] == "complete"
    assert outcome.err == ""
    assert outcome.out.splitlines()[-1] == f"report: {tmp_path / 'report'}"
    files = list((tmp_path / "report").iterdir())
    assert {file.name for file in files} == {"report.json", "report.html", "latency.png", "memory.png", "prefill.png"}
    assert runtime.sessions == {}
    for double in (runtime, admin):
        assert {came["authorization"] for calls in double.metadata.values() for came in calls} == {f"Bearer {SECRET}"}
    assert SECRET not in outcome.out
    assert SECRET.encode() not in b"".join(file.read_bytes() for file in files)


def test_progress_and_summary_go_different_ways(bench: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    outcome = bench(*SHORT, "--turns", "3")
    assert [line.partition("%")[0] for line in outcome.err.splitlines()] == [f"session: {n}" for n in (33, 67, 100)]
    title, about, *_ = outcome.out.splitlines()
    assert title == "kakeya bench session: counter"
    assert about.startswith("counter with 4 sinks and a window of 16 tokens. 3 turns in 1 session, ")


def test_the_document_for_programs(bench: Play) -> None:
    outcome = bench(*FEW, "--json")
    assert json.loads(outcome.out) == outcome.document
    assert outcome.err.startswith("report: ")


def test_a_failed_gate(bench: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake that a gate like this one once overlooked: what is reported is zero."""
    monkeypatch.setattr(scripted_runtime, "BYTES_PER_TOKEN", 0)
    outcome = bench(*ENOUGH)
    assert outcome.status == 1
    assert outcome.gate("kv_bounded")["reason"] == "session 0 turn 1, history 5: 0 bytes, expected 5,120"
    (line,) = [line.split() for line in outcome.out.splitlines() if line.startswith("kv_bounded")]
    assert line[1:6] == ["failed", "session", "0", "turn", "1,"]


def test_a_gate_that_cannot_be_judged(play: Play, admin: ScriptedAdmin) -> None:
    """Without an operator's key nobody says what memory the worker has, or the type of its KV."""
    admin.before["ListWorkers"] += [fails("PERMISSION_DENIED")] * 100
    outcome = play(*ENOUGH)
    assert outcome.status == 2
    assert (outcome.gate("rss_bounded")["outcome"], outcome.gate("kv_bounded")["outcome"]) == ("undecided", "undecided")
    assert "--kv-dtype" in outcome.gate("kv_bounded")["reason"]
    assert {turn["worker_rss_bytes"] for turn in outcome.turns} == {None}
    assert outcome.document["agg"]["worker_rss_bytes"] is None
    outcome = play(*ENOUGH, "--kv-dtype", "float32", "--skip-gate", "rss_bounded")
    assert (outcome.status, outcome.gate("kv_bounded")["outcome"]) == (0, "passed")


@pytest.mark.parametrize(
    ("flags_given", "says"),
    [
        (["--output", "{}/file"], "{}/file: File exists"),
        (["--output", "{}/file/report"], "{}/file/report: Not a directory"),
        (["--api-key-file", "{}/none"], "--api-key-file {}/none: No such file or directory"),
    ],
)
def test_what_is_said_before_anything_is_asked_of_the_runtime(
    bench: Play, runtime: ScriptedRuntime, tmp_path: Path, flags_given: list[str], says: str
) -> None:
    (tmp_path / "file").write_text("of somebody's")
    outcome = bench(*FEW, *(flag.format(tmp_path) for flag in flags_given))
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err == f"kakeya bench session: error: {says.format(tmp_path)}\n"
    assert runtime.requests == {}


def test_the_report_loses_its_place(bench: Play, runtime: ScriptedRuntime, tmp_path: Path) -> None:
    """What was found is said, at least."""
    report = tmp_path / "report"

    def take_away(context: object) -> None:
        shutil.rmtree(report)
        report.write_text("in the way")

    runtime.before["CloseSession"].append(take_away)
    outcome = bench(*FEW)
    assert outcome.status == 2
    assert "2 turns in 1 session" in outcome.out
    assert outcome.err.startswith(f"kakeya bench session: error: {report / 'report.json'}: ")


def test_nobody_listens_any_more(bench: Play, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in `kakeya bench session | head -1`: the report is whole."""

    def breaks(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("kakeya_bench.report.console.print_sections", breaks)
    with pytest.raises(BrokenPipeError):
        bench(*FEW)
    assert json.loads((tmp_path / "report" / "report.json").read_text())["state"] == "complete"
    assert (tmp_path / "report" / "report.html").exists()


@pytest.mark.parametrize(
    ("method", "reason", "flags_given", "says"),
    [
        ("ListModels", "UNAUTHENTICATED", FEW, "set KAKEYA_API_KEY or pass --api-key-file\n"),
        ("CreateSession", "NO_CAPACITY", FEW, "kakeya bench session: error: scripted NO_CAPACITY\n"),
        ("", "", [*FEW, "--model", "nobody"], "(served: counter)\n"),
        ("", "", ["--tokenizer", "{}", "--prompts", "/none"], ": /none: No such file or directory\n"),
    ],
)
def test_why_nothing_is_played(
    bench: Play,
    runtime: ScriptedRuntime,
    template_dir: Path,
    method: str,
    reason: str,
    flags_given: list[str],
    says: str,
) -> None:
    runtime.before[method] += [fails(reason)] if method else []
    outcome = bench(*(flag.format(template_dir) for flag in flags_given))
    assert (outcome.status, outcome.document, outcome.out) == (2, {}, "")
    assert outcome.err.startswith("kakeya bench session: error: ")
    assert outcome.err.endswith(says)


def test_no_runtime_is_there(bench: Play, runtime: ScriptedRuntime) -> None:
    runtime.stop()
    outcome = bench(*FEW)
    assert outcome.status == 2
    assert outcome.err.endswith("; nothing listens there; `kakeya up` starts one on this machine\n")


def test_the_tokenizer_of_another_model(bench: Play, runtime: ScriptedRuntime, tmp_path: Path) -> None:
    folder = tiny_tokenizer.save_with_words(tmp_path / "large", 800)
    outcome = bench("--tokenizer", str(folder), "--turns", "2")
    assert outcome.status == 2
    assert f"the tokenizer {folder} is another model's (1,058 ids, and the model knows 1,000)" in outcome.err
    assert (runtime.sessions, appended(runtime)) == ({}, [])


def test_the_config_beside_the_tokenizer(
    runtime: ScriptedRuntime, template_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(template_dir, tmp_path / "model")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    output = tmp_path / "report"
    command.main(["--address", runtime.address, "--tokenizer", str(folder), "--output", str(output), "--turns", "2"])
    assert "equal in all 2 turns" in capsys.readouterr().out


def test_help_does_not_wait_for_what_measures_and_draws(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("scipy", "matplotlib", "kakeya_bench.session.run"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SystemExit) as ended:
        command.main(["--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: kakeya bench session ")
