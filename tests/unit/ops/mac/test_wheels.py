"""Wheels that are kept for a run without an index."""

import zipfile
from pathlib import Path

import pytest

from ops.mac import wheels


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """Wheels of two distributions, one of them named as ours are."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in ("sample", "kakeya_sample"):
        with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            wheel.writestr(
                f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            wheel.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return folder


def fetch(index: Path, kept: Path, *requirements: str) -> int:
    return wheels.main([str(kept), "--", "--no-index", "--find-links", str(index), *requirements])


def test_they_are_kept_but_for_our_own(index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "cache" / "wheels"
    assert not wheels.are_current(kept)
    assert fetch(index, kept, "sample", "kakeya-sample") == 0
    assert sorted(each.name for each in kept.iterdir()) == ["sample-1.0-py3-none-any.whl", "stamp"]
    assert wheels.are_current(kept)
    assert capsys.readouterr().out == f"1 wheels in {kept}\n"


def test_what_is_not_to_be_had_leaves_the_old_ones(index: Path, tmp_path: Path) -> None:
    kept = tmp_path / "wheels"
    assert fetch(index, kept, "sample") == 0
    assert fetch(index, kept, "missing") != 0
    assert wheels.are_current(kept)
    assert (kept / "sample-1.0-py3-none-any.whl").exists()
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith("wheels-")] == []


def test_those_of_before_are_replaced(index: Path, tmp_path: Path) -> None:
    kept = tmp_path / "wheels"
    kept.mkdir()
    (kept / "old-0.1-py3-none-any.whl").touch()
    assert fetch(index, kept, "sample") == 0
    assert not (kept / "old-0.1-py3-none-any.whl").exists()


def test_a_stamp_changes_with_what_is_to_be_installed(tmp_path: Path) -> None:
    (tmp_path / "parts" / "one").mkdir(parents=True)
    files = ["constraints.txt", "requirements-dev.txt", "parts/pyproject.toml", "parts/one/pyproject.toml"]
    for name in files:
        (tmp_path / name).write_text("")
    stamps = {wheels.wanted_stamp(tmp_path)}
    for name in files:
        (tmp_path / name).write_text("more")
        stamps.add(wheels.wanted_stamp(tmp_path))
    assert len(stamps) == len(files) + 1
    (tmp_path / "README.md").write_text("more")
    assert wheels.wanted_stamp(tmp_path) in stamps


def test_a_stamp_names_python_and_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    here = wheels.wanted_stamp()
    monkeypatch.setattr("platform.python_version_tuple", lambda: ("3", "99", "1"))
    monkeypatch.setattr("platform.machine", lambda: "m68k")
    assert wheels.wanted_stamp() != here
    assert wheels.wanted_stamp().split()[1] == "python3.99"
    assert wheels.wanted_stamp().endswith("-m68k\n")
