"""`kakeya doctor` on macOS: what given facts mean, and how they are read."""

import os
import platform
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kakeya_local.doctor import installation, mac
from kakeya_local.doctor.findings import Condition, Finding
from kakeya_local.doctor.mac import MacFacts, MlxFacts

MLX = MlxFacts(version="0.32.2", device="gpu applegpu_g16s", has_metal=True, wirable_bytes=18 << 30)
MINI = MacFacts(
    macos="15.1",
    machine="arm64",
    has_apple_silicon=True,
    memory_bytes=24 << 30,
    wired_limit_mb=0,
    idle_minutes=0,
    num_files=10_240,
    mlx=MLX,
)


def found(facts: MacFacts) -> dict[str, Finding]:
    return {finding.subject: finding for finding in mac.findings(facts)}


def test_a_mac_that_is_as_it_should_be() -> None:
    assert [finding.condition for finding in mac.findings(MINI)] == [Condition.OK] * 6
    assert {finding.area for finding in mac.findings(MINI)} == {"mac"}
    assert found(MINI)["mlx"].detail == "0.32.2 on gpu applegpu_g16s, by Metal"
    assert "18.0 of 24.0 GiB may be wired (the system's choice" in found(MINI)["gpu memory"].detail


@pytest.mark.parametrize(
    ("facts", "subject", "detail", "cure"),
    [
        (replace(MINI, macos="13.6.1"), "macos", "13.6.1: MLX needs 14", "update macOS"),
        (replace(MINI, macos=""), "macos", "unknown", "update macOS"),
        (replace(MINI, machine="x86_64"), "architecture", "Rosetta", "native Python"),
        (replace(MINI, machine="x86_64", has_apple_silicon=False), "architecture", "Apple silicon", "another machine"),
        (replace(MINI, mlx=MlxFacts(problem="No module named 'mlx'")), "mlx", "No module", "kakeya-worker[mlx]"),
        (replace(MINI, mlx=replace(MLX, has_metal=False, device="cpu")), "mlx", "computes on cpu", "on the Mac itself"),
        (replace(MINI, idle_minutes=10), "sleep", "after 10 idle minutes", "pmset -a sleep 0"),
        (replace(MINI, idle_minutes=None), "sleep", "unknown", "pmset -g"),
        (replace(MINI, wired_limit_mb=23_000), "gpu memory", "too little is left", "iogpu.wired_limit_mb=0"),
        (replace(MINI, num_files=256), "open files", "256 in a process", "SoftResourceLimits"),
    ],
)
def test_what_is_amiss_names_its_cure(facts: MacFacts, subject: str, detail: str, cure: str) -> None:
    finding = found(facts)[subject]
    assert finding.condition is Condition.ABSENT, "nobody has asked for it"
    assert detail in finding.detail
    assert cure in finding.cure
    others = [each for each in mac.findings(facts) if each.subject != subject]
    assert {each.condition for each in others} == {Condition.OK}


def test_agents_may_be_kept_from_the_local_network() -> None:
    """What a terminal reaches says nothing of them."""
    finding = found(replace(MINI, agents=("kakeya-worker",)))["local network"]
    assert finding.condition is Condition.ABSENT
    assert "kakeya-worker: macOS keeps agents" in finding.detail
    assert "kakeya worker install-service --system" in finding.cure
    assert "local network" not in found(replace(MINI, agents=("kakeya-worker",), macos="14.7"))
    assert "local network" not in found(MINI)


def test_a_limit_that_was_set_is_told() -> None:
    assert "iogpu.wired_limit_mb is 20480" in found(replace(MINI, wired_limit_mb=20_480))["gpu memory"].detail


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Mac's commands, which this machine has not."""
    scripts = {
        "sysctl": 'case "$2" in hw.optional.arm64) echo 1;; hw.memsize) echo 25769803776;; *) exit 1;; esac',
        "pmset": "printf 'Currently in use:\\n standby 1\\n disksleep 10\\n sleep                5 (by x)\\n'",
    }
    for name, script in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


def test_facts_are_read(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    agents = tmp_path / "Library/LaunchAgents"
    agents.mkdir(parents=True)
    (agents / "kakeya-worker.plist").touch()
    (agents / "another.plist").touch()
    assert mac.read_facts().agents == ("kakeya-worker",)
    facts = mac.read_facts()
    assert (facts.has_apple_silicon, facts.memory_bytes, facts.wired_limit_mb) == (True, 24 << 30, 0)
    assert (facts.idle_minutes, facts.machine) == (5, platform.machine())
    assert facts.num_files > 0
    (tools / "pmset").unlink()
    assert mac.read_facts().idle_minutes is None


def shadow_mlx(directory: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    (directory / "mlx").mkdir()
    (directory / "mlx" / "__init__.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(directory), prepend=os.pathsep)


def test_mlx_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlx.core", reason="the part alone brings no MLX")
    facts = mac.read_mlx()
    assert facts.problem == ""
    assert facts.version.count(".") == 2
    assert facts.device.split()[0] == ("gpu" if facts.has_metal else "cpu")
    assert facts.has_metal == (sys.platform == "darwin")


def test_an_mlx_that_cannot_be_imported_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shadow_mlx(tmp_path, monkeypatch, "raise ImportError('libmlx.so: not found')\n")
    assert mac.read_mlx() == MlxFacts(problem="ImportError: libmlx.so: not found")


def test_an_mlx_that_ends_its_process_is_no_end_of_the_doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shadow_mlx(tmp_path, monkeypatch, "import os; os.abort()\n")
    assert mac.read_mlx().problem.startswith("exit status -")


def test_an_mlx_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shadow_mlx(tmp_path, monkeypatch, "import time; time.sleep(60)\n")
    monkeypatch.setattr(mac, "_COMMAND_SECONDS", 0.5)
    assert mac.read_mlx().problem == "it is not imported within 0.5 s"


def test_the_doctor_looks_at_macs_only(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for system, subjects in (("Linux", set[str]()), ("Darwin", {"macos", "architecture", "sleep", "open files"})):
        monkeypatch.setattr(platform, "system", lambda system=system: system)
        seen = {finding.subject for finding in installation.examine() if finding.area == "mac"}
        assert seen - {"mlx", "gpu memory"} == subjects
        assert ("mlx" in seen) == (system == "Darwin")
