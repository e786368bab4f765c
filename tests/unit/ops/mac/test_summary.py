"""The page of what the Mac's workflow left."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ops.mac import summary


def junit(folder: Path, name: str, text: str) -> None:
    """As pytest writes it of a file of tests with this text."""
    file = folder / f"test_{name.replace('-', '_')}.py"
    file.write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull]
    command += ["--junitxml", str(folder / f"{name}.xml"), str(file)]
    bare = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run(command, cwd=folder, env=bare, capture_output=True)


def evidence(folder: Path, verdict: str = "holds", **gate: str) -> None:
    document: dict[str, Any] = {
        "verdict": verdict,
        "problems": [] if verdict == "holds" else ["rss_bounded failed: it grew"],
        "host": {"processor": "", "machine": "arm64"},
        "session": {"num_turns": 1200, "gates": {"rss_bounded": {"outcome": "passed", "reason": ""} | gate}},
    }
    (folder / "evidence.json").write_text(json.dumps(document))


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of a suite with one test that passes."""
    folder = tmp_path_factory.mktemp("passed")
    junit(folder, "any", "def test_a(): pass\n")
    return folder / "any.xml"


@pytest.fixture
def well(tmp_path: Path, passed: Path) -> Path:
    for name in summary.TESTS:
        shutil.copy(passed, tmp_path / f"{name}.xml")
    evidence(tmp_path)
    return tmp_path


def page(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = summary.main([str(folder)])
    return status, capsys.readouterr().out


def test_all_is_well(well: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = page(well, capsys)
    assert status == 0
    assert "| MLX conformance | 1 | 0 | 0 |" in text
    assert "| Mixed stack | 1 | 0 | 0 |" in text
    assert "Session of 1200 turns on arm64: **holds**." in text
    assert "<details>" not in text


def test_failures_are_shown_with_what_they_said(well: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        "import pytest\n"
        "@pytest.fixture\ndef broken(): raise OSError('no disk')\n"
        "def test_a(): assert 1 + 1 == 3, 'one <b>and</b> one'\n"
        "def test_b(broken): pass\n"
        "@pytest.mark.skip\ndef test_c(): pass\n"
        "def test_d(): pass\n"
    )
    junit(well, "conformance", text)
    status, text = page(well, capsys)
    assert status == 1
    assert "| MLX conformance | 1 | 2 | 1 |" in text
    assert "<code>test_conformance::test_a</code>" in text
    assert "    E   AssertionError: one <b>and</b> one" in text
    assert "<code>test_conformance::test_b</code>" in text
    assert "OSError: no disk" in text


def test_a_long_list_is_cut(well: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = "import pytest\n@pytest.mark.parametrize('n', range(25))\ndef test_a(n): assert n < 0, '<n>'\n"
    junit(well, "conformance", many)
    status, text = page(well, capsys)
    assert status == 1
    assert text.count("<details>") == 20
    assert "and 5 more: see the files of the run." in text


@pytest.mark.parametrize("name", ["conformance.xml", "mixed-stack.xml", "evidence.json"])
@pytest.mark.parametrize("text", [None, "", "<testsuites/>"])
def test_what_is_missing_is_named(well: Path, capsys: pytest.CaptureFixture[str], name: str, text: str | None) -> None:
    if text is None:
        (well / name).unlink()
    else:
        (well / name).write_text(text)
    status, said = page(well, capsys)
    assert status == 1
    assert f"`{name}` is missing" in said


def test_a_suite_without_tests_is_not_well(well: Path, capsys: pytest.CaptureFixture[str]) -> None:
    junit(well, "mixed-stack", "")
    status, text = page(well, capsys)
    assert status == 1
    assert "| Mixed stack | 0 | 0 | 0 |" in text


def test_a_gate_that_failed_is_told(well: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evidence(well, "does not hold", outcome="failed", reason="it grew | by <much>")
    status, text = page(well, capsys)
    assert status == 1
    assert "- rss_bounded failed: it grew" in text
    assert "| rss_bounded | failed | it grew \\| by &lt;much&gt; |" in text
