"""`kakeya bench session` as it is typed: where it speaks, what it writes, how it exits."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from kakeya.bench import progress
from kakeya.bench.session import command
from kakeya.cli.commands import bench as benches
from kakeya.cli.commands import commands
from tests.unit.sdk import scripted_runtime
from tests.unit.sdk.bench.playing import CONFIG, SHORT, Play, appended
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails, model

SECRET = "kakeya_key_0123456789ab_" + "s" * 43
ENOUGH = (*SHORT, "--turns", "120", "--skip-gate", "prefill_bounded")
"""A run that every gate but that of time can judge: what time turns take is for a real runtime to say."""


def test_it_is_installed() -> None:
    assert commands.summary(commands.find(benches.GROUP)["session"]) == command.SUMMARY


def test_every_gate_is_passed(bench: Play, runtime: ScriptedRuntime, tmp_path: Path) -> None:
    outcome = bench(*ENOUGH, "--exact")
    assert outcome.status == 0
    said = {name: gate["outcome"] for name, gate in outcome.document["gates"].items()}
    assert said == {
        "kv_bounded": "passed", "rss_bounded": "passed", "prefill_bounded": "skipped", "errors": "passed",
        "exact": "passed",
    }  # fmt: skip
    assert outcome.err == ""
    assert outcome.out.splitlines()[-1] == f"report: {tmp_path / 'report'}"
    files = {file.name for file in (tmp_path / "report").iterdir()}
    assert {"report.json", "report.html"} < files, "and pictures"
    assert runtime.sessions == {}


def test_progress_and_summary_go_different_ways(bench: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    outcome = bench(*SHORT, "--turns", "3")
    assert [line.partition("%")[0] for line in outcome.err.splitlines()] == [
        "session: 33",
        "session: 67",
        "session: 100",
    ]
    assert outcome.out.startswith("counter: sink 4, window 16, 3 turns, 9 tokens in, 6 out, 36 evicted (complete)\n")


def test_a_failed_gate(bench: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake that a gate like this one once overlooked: what is reported is zero."""
    monkeypatch.setattr(scripted_runtime, "BYTES_PER_TOKEN", 0)
    outcome = bench(*ENOUGH)
    assert outcome.status == 1
    assert outcome.gate("kv_bounded")["outcome"] == "failed"
    assert outcome.gate("kv_bounded")["reason"] == "session 0 turn 1, history 5: 0 bytes, expected 5,120"
    assert "failed     kv_bounded: session 0 turn 1" in outcome.out


def test_a_gate_that_cannot_be_judged(bench: Play, play: Play, admin: ScriptedAdmin) -> None:
    """Without an operator's key nobody says what memory the worker has, or the type of its KV."""
    admin.before["ListWorkers"] += [fails("PERMISSION_DENIED")] * 100
    outcome = bench(*ENOUGH)
    assert outcome.status == 2
    assert (outcome.gate("rss_bounded")["outcome"], outcome.gate("kv_bounded")["outcome"]) == ("undecided", "undecided")
    assert "--kv-dtype" in outcome.gate("kv_bounded")["reason"]
    assert {turn["worker_rss_bytes"] for turn in outcome.turns} == {None}
    assert outcome.document["agg"]["worker_rss_bytes"] is None
    outcome = play(*ENOUGH, "--kv-dtype", "float32")
    assert (outcome.status, outcome.gate("kv_bounded")["outcome"]) == (2, "passed")
    outcome = bench(*ENOUGH, "--kv-dtype", "float32", "--skip-gate", "rss_bounded")
    assert (outcome.status, outcome.gate("rss_bounded")["outcome"]) == (0, "skipped")


def test_a_failed_gate_outweighs_one_that_cannot_be_judged(play: Play, runtime: ScriptedRuntime) -> None:
    runtime.before["Generate"].append(fails("INTERNAL"))
    outcome = play(*SHORT, "--turns", "2")
    assert outcome.gate("rss_bounded")["outcome"] == "undecided"
    assert outcome.status == 1


def test_bad_flags(bench: Play, runtime: ScriptedRuntime) -> None:
    outcome = bench("--turns", "none")
    assert (outcome.status, outcome.out, outcome.document) == (2, "", {})
    assert "'none' is not a whole number" in outcome.err
    assert runtime.requests == {}


def test_the_key_is_shown_to_the_runtime_alone(
    bench: Play, runtime: ScriptedRuntime, admin: ScriptedAdmin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KAKEYA_API_KEY", SECRET)
    outcome = bench(*SHORT, "--turns", "2")
    for double in (runtime, admin):
        shown = [came["authorization"] for calls in double.metadata.values() for came in calls]
        assert set(shown) == {f"Bearer {SECRET}"}
    written = b"".join(file.read_bytes() for file in (tmp_path / "report").iterdir())
    assert SECRET not in outcome.out + outcome.err
    assert SECRET.encode() not in written


@pytest.mark.parametrize(("place", "reason"), [("file", "File exists"), ("file/report", "Not a directory")])
def test_the_report_has_no_place(
    bench: Play, runtime: ScriptedRuntime, tmp_path: Path, place: str, reason: str
) -> None:
    """Said before anything is asked of the runtime."""
    (tmp_path / "file").write_text("of somebody's")
    outcome = bench(*SHORT, "--output", str(tmp_path / place))
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err == f"kakeya bench session: error: {tmp_path / place}: {reason}\n"
    assert runtime.requests == {}


def test_the_report_loses_its_place(bench: Play, runtime: ScriptedRuntime, tmp_path: Path) -> None:
    runtime.before["CloseSession"].append(lambda context: shutil.rmtree(tmp_path / "report"))
    outcome = bench(*SHORT, "--turns", "2")
    assert outcome.status == 2
    assert outcome.err.startswith(f"kakeya bench session: error: {tmp_path / 'report'}")
    assert outcome.err.endswith(": No such file or directory\n")


def test_no_runtime_is_there(bench: Play, runtime: ScriptedRuntime) -> None:
    runtime.stop()
    outcome = bench(*SHORT, "--turns", "2")
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith(f"kakeya bench session: error: no runtime answers at {runtime.address} ")
    assert outcome.err.endswith("; nothing listens there; `kakeya up` starts one on this machine\n")


def test_a_key_is_asked_for(bench: Play, runtime: ScriptedRuntime) -> None:
    runtime.before["ListModels"].append(fails("UNAUTHENTICATED"))
    outcome = bench(*SHORT, "--turns", "2")
    assert outcome.status == 2
    assert outcome.err.endswith("set KAKEYA_API_KEY or pass --api-key-file\n")


def test_a_key_that_cannot_be_read(bench: Play, tmp_path: Path) -> None:
    outcome = bench(*SHORT, "--api-key-file", str(tmp_path / "none"))
    assert outcome.status == 2
    assert outcome.err.endswith("none: No such file or directory\n")


def test_no_lane_is_free(bench: Play, runtime: ScriptedRuntime) -> None:
    runtime.before["CreateSession"].append(fails("NO_CAPACITY"))
    outcome = bench(*SHORT, "--turns", "2")
    assert (outcome.status, outcome.document) == (2, {})
    assert outcome.err == "kakeya bench session: error: scripted NO_CAPACITY\n"


def test_the_tokenizer_of_another_model(bench: Play, runtime: ScriptedRuntime, tmp_path: Path) -> None:
    from tests.unit.sdk import tiny_tokenizer  # imports transformers, which takes seconds

    folder = tiny_tokenizer.save_with_words(tmp_path / "large", 800)
    outcome = bench("--tokenizer", str(folder), "--turns", "2")
    assert outcome.status == 2
    assert f"the tokenizer {folder} is another model's (1,058 ids, and the model knows 1,000)" in outcome.err
    assert (runtime.sessions, appended(runtime)) == ({}, [])


def test_no_tokenizer_is_known(bench: Play) -> None:
    outcome = bench("--turns", "2")
    assert outcome.status == 2
    assert "which tokenizer? The model is 'counter', and none of that name is installed" in outcome.err


def test_no_messages(bench: Play, template_dir: Path, tmp_path: Path) -> None:
    outcome = bench("--tokenizer", str(template_dir), "--prompts", str(tmp_path / "none"))
    assert outcome.status == 2
    assert outcome.err == f"kakeya bench session: error: {tmp_path / 'none'}: No such file or directory\n"


def test_the_model_is_chosen(bench: Play, runtime: ScriptedRuntime) -> None:
    runtime.models = [model("counter"), model("other")]
    outcome = bench(*SHORT, "--turns", "2")
    assert outcome.status == 2
    assert outcome.err.endswith("name one with --model: counter, other\n")
    assert bench(*SHORT, "--turns", "2", "--model", "nobody").err.endswith("(served: counter, other)\n")


def test_the_extra_is_not_installed(bench: Play, monkeypatch: pytest.MonkeyPatch, runtime: ScriptedRuntime) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    outcome = bench(*SHORT, "--turns", "2")
    assert outcome.status == 2
    assert outcome.err.startswith("kakeya bench session: error: ")
    assert outcome.err.endswith("; install it with: pip install 'kakeya[bench]'\n")
    assert runtime.requests == {}


def test_the_config_beside_the_tokenizer(
    runtime: ScriptedRuntime, template_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(template_dir, tmp_path / "model")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    output = tmp_path / "report"
    command.main(["--address", runtime.address, "--tokenizer", str(folder), "--output", str(output), "--turns", "2"])
    assert "passed     kv_bounded: equal in all 2 turns" in capsys.readouterr().out
