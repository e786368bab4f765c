"""ops/evidence.py: what a reviewer gets to see of a machine."""

import json
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from ops import evidence

ROOT = Path(__file__).resolve().parents[2]
GATES = ("kv_bounded", "rss_bounded", "prefill_bounded", "errors", "exact")
SOUND: dict[str, Any] = {
    "platform_tests": {"exit_status": 0, "summary": "231 passed"},
    "session": {
        "backend": "torch",
        "exit_status": 0,
        "kv_live_bytes": {"min": 1, "mean": 2, "max": 3},
        "gates": {name: {"outcome": "passed", "reason": ""} for name in GATES},
    },
}


def _run(*flags: str, timeout: float | None = 60) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "ops" / "evidence.py"), *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


def test_sound_evidence_has_no_problems() -> None:
    assert evidence._problems(SOUND) == []
    assert evidence._problems(SOUND | {"platform_tests": None}) == []


def test_of_floats_no_replay_is_asked_for() -> None:
    found = deepcopy(SOUND)
    found["session"]["gates"]["exact"]["outcome"] = "skipped"
    assert evidence._problems(found | {"session": found["session"] | {"backend": "mlx"}}) == []
    assert "--exact" not in _run("--backend", "mlx", "--print-4h-cmd").stdout
    assert "--worker mlx" in _run("--backend", "mlx", "--print-server-cmd").stdout


@pytest.mark.parametrize(
    ("counts", "summary", "status"),
    [
        ("tests='9' failures='0' errors='0' skipped='2'", "7 passed, 0 failed, 0 errors, 2 skipped", 0),
        ("tests='9' failures='1' errors='0' skipped='0'", "8 passed, 1 failed, 0 errors, 0 skipped", 1),
        ("tests='9' failures='0' errors='3' skipped='0'", "6 passed, 0 failed, 3 errors, 0 skipped", 1),
        ("tests='0' failures='0' errors='0' skipped='0'", "0 passed, 0 failed, 0 errors, 0 skipped", 1),
    ],
)
def test_tests_that_were_run_before_are_read(tmp_path: Path, counts: str, summary: str, status: int) -> None:
    junit = tmp_path / "conformance.xml"
    junit.write_text(f"<testsuites><testsuite name='pytest' {counts} time='12.34'/></testsuites>")
    found = evidence._read_tests(junit)
    assert found == {"junit": str(junit), "exit_status": status, "summary": summary, "seconds": 12.3}


@pytest.mark.parametrize("text", [None, "", "<testsuites/>", "<testsuite name='pytest'/>"])
def test_a_file_that_says_nothing_of_tests_does_not_hold(tmp_path: Path, text: str | None) -> None:
    junit = tmp_path / "conformance.xml"
    if text is not None:
        junit.write_text(text)
    (said,) = evidence._problems(deepcopy(SOUND) | {"platform_tests": evidence._read_tests(junit)})
    assert said.startswith(f"the platform's tests end with 2: {junit} does not say how they ended: ")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda found: found["platform_tests"].update(exit_status=1, summary="1 failed"), "tests end with 1: 1 failed"),
        (lambda found: found["session"]["kv_live_bytes"].update(min=0), "no KV was live"),
        (lambda found: found["session"].update(kv_live_bytes=None), "no KV was live"),
        (lambda found: found["session"]["gates"]["exact"].update(outcome="skipped"), "exact skipped"),
        (lambda found: found["session"]["gates"]["rss_bounded"].update(outcome="undecided"), "rss_bounded undecided"),
        (lambda found: found["session"].update(exit_status=130), "the bench ended with 130"),
    ],
)
def test_what_does_not_hold_is_a_problem(change: Any, problem: str) -> None:
    found = deepcopy(SOUND)
    change(found)
    (said,) = evidence._problems(found)
    assert problem in said


def test_the_commands_are_told() -> None:
    server = _run("--print-server-cmd").stdout
    assert " -m kakeya up --ephemeral " in server
    bench = _run("--print-4h-cmd").stdout
    assert " -m kakeya bench session " in bench
    assert bench.rstrip().endswith("--exact --preset 4h")
    address = server.split("--bind ")[1].split()[0]
    assert f"--address {address} " in bench


def test_a_stack_that_does_not_start_is_no_evidence(tmp_path: Path) -> None:
    done = _run("--skip-tests", "--model", str(tmp_path / "nothing"), "--output", str(tmp_path / "evidence.json"))
    assert done.returncode == 2
    assert "the stack did not start" in done.stderr
    assert not (tmp_path / "evidence.json").exists()


@pytest.mark.heavy
def test_evidence_of_this_machine(tmp_path: Path) -> None:
    """Whether it is quiet enough to judge the time of a turn is not asked."""
    output = tmp_path / "evidence.json"
    done = _run("--seconds", "25", "--output", str(output), "--tests", "-k", "test_facts", timeout=None)
    found = json.loads(output.read_text())
    assert done.returncode == (0 if found["verdict"] == "holds" else 1), done.stderr
    assert found["schema"] == evidence.SCHEMA
    assert len(found["change"]["commit"]) == 40
    assert found["host"]["memory_bytes"] > 1 << 30
    assert found["host"]["versions"]["kakeya-worker"]
    assert found["platform_tests"]["exit_status"] == 0
    assert " passed" in found["platform_tests"]["summary"]
    session = found["session"]
    assert session["kv_live_bytes"]["min"] > 0
    assert session["kv_live_bytes"]["max"] == session["model"]["kv_live_bytes_at_plateau"]
    for gate in ("kv_bounded", "rss_bounded", "errors", "exact"):
        assert session["gates"][gate]["outcome"] == "passed", session["gates"]
    assert all(problem.startswith("prefill_bounded") for problem in found["problems"])
