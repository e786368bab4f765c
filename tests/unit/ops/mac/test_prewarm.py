"""Whether a machine can run the Mac's workflow."""

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ops.mac import prewarm, wheels


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    (tmp_path / wheels.STAMP).write_text(wheels.wanted_stamp())
    return tmp_path


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As far as Python can tell; the folder comes first in PATH, and its xcode-select says that there are tools."""
    folder = tmp_path_factory.mktemp("mac")
    tool = folder / "xcode-select"
    tool.write_text("#!/bin/sh\necho /Library/Developer/CommandLineTools\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    return folder


def broken(kept: Path) -> dict[str, str]:
    return {check.name: check.mend for check in prewarm.look(kept) if check.mend}


def test_all_is_well(kept: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prewarm, "MIN_FREE_BYTES", 1)
    assert prewarm.main(["--wheels", str(kept)]) == 0
    said = capsys.readouterr()
    assert [line.split()[:2] for line in said.out.splitlines()] == [
        ["ok", "Python:"],
        ["ok", "compiler:"],
        ["ok", "disk:"],
        ["ok", "wheels:"],
    ]
    assert said.err == ""


def test_what_is_missing_comes_with_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prewarm.main(["--wheels", str(tmp_path / "nothing")]) == 1
    said = capsys.readouterr()
    assert f"MISSING wheels: {tmp_path / 'nothing'}: none" in said.out
    assert f"to mend wheels, run on {platform.node()}: make -C {wheels.ROOT} mac-warm" in said.err


def test_the_page_of_a_run_shows_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    prewarm.main(["--wheels", str(tmp_path)])
    assert "::error" not in capsys.readouterr().out
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    prewarm.main(["--wheels", str(tmp_path)])
    assert "::error title=pre-warm check::to mend wheels, run on" in capsys.readouterr().out


def test_the_command_is_a_target() -> None:
    done = subprocess.run(["make", "-n", "mac-warm"], cwd=wheels.ROOT, capture_output=True, text=True, check=True)
    assert "-m ops.mac.wheels" in done.stdout


def test_wheels_of_other_requirements(kept: Path) -> None:
    (kept / wheels.STAMP).write_text("of yesterday")
    assert [check.found for check in prewarm.look(kept) if check.name == "wheels"] == [f"{kept}: of other requirements"]
    assert broken(kept)["wheels"].endswith("mac-warm")


def test_an_old_python(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 6, "final", 0))
    assert broken(kept)["Python"].startswith("brew install python@3.11")


def test_no_compiler(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert broken(kept)["compiler"] == "apt-get install g++"


def test_a_full_disk(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prewarm, "MIN_FREE_BYTES", 1 << 60)
    assert "sort -h" in broken(kept)["disk"]


def test_a_mac(kept: Path, mac: Path) -> None:
    found = {check.name: check.found for check in prewarm.look(kept)}
    assert found["compiler"] == "/Library/Developer/CommandLineTools"
    assert found["processor"] == "arm64"
    assert not {"compiler", "processor"} & broken(kept).keys()


def test_a_mac_without_tools_and_with_rosetta(kept: Path, mac: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (mac / "xcode-select").write_text("#!/bin/sh\nexit 2\n")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    found = broken(kept)
    assert found["compiler"] == "xcode-select --install"
    assert "Rosetta" in found["processor"]


def test_an_old_python_gets_as_far_as_to_say_so() -> None:
    """What it cannot read it cannot say: neither file has syntax of a newer one."""
    import ast

    for module in (prewarm, wheels):
        tree: Any = ast.parse(Path(str(module.__file__)).read_text(), feature_version=(3, 9))
        assert any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.Match)]
