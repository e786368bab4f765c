"""Where the administrator of a run finds the key."""

import sys
from pathlib import Path

import pytest

from kakeya_local.errors import StackError
from kakeya_local.up.key_handover import handed_over

KEY = "kakeya_key_0123456789ab_secret"


def test_in_a_terminal_it_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with handed_over(KEY, tmp_path) as lines:
        assert lines[-1] == f"export KAKEYA_API_KEY={KEY}"
        assert list(tmp_path.iterdir()) == []


def test_elsewhere_it_is_in_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "admin-key"
    file.write_text("of a run that was killed")
    file.chmod(0o644)
    with handed_over(KEY, tmp_path) as lines:
        assert KEY not in "".join(lines)
        assert lines[-1].endswith(f"--api-key-file {file}")
        assert (file.read_text(), file.stat().st_mode & 0o777) == (f"{KEY}\n", 0o600)
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("whole")
    (tmp_path / "admin-key").symlink_to(target)
    with handed_over(KEY, tmp_path):
        assert target.read_text() == "whole"


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with (
        pytest.raises(StackError, match=r"cannot write the administrator's key to .*/nowhere/admin-key: No such file"),
        handed_over(KEY, tmp_path / "nowhere"),
    ):
        pass
