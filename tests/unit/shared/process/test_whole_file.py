"""Files that are replaced as a whole or not at all."""

import os
import stat
import time
from pathlib import Path

import pytest

from kakeya_shared.process.whole_file import replacing

_HOURS = 2 * 3600


def test_it_takes_the_place_of_what_is_there_once_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with replacing(path) as temporary:
        temporary.write_text("first")
        assert not path.exists()
    with replacing(path) as temporary:
        temporary.write_text("second")
        assert path.read_text() == "first"
    assert path.read_text() == "second"
    assert list(path.parent.iterdir()) == [path]


def test_what_breaks_off_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    with pytest.raises(FileNotFoundError), replacing(path):
        pass  # nothing was written
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_others_may_read_it_whatever_this_process_is_used_to(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with replacing(tmp_path / "file") as temporary:
            temporary.write_text("shared")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


def test_what_a_killed_process_left_is_swept_once_it_is_old(tmp_path: Path) -> None:
    def left(name: str, seconds_ago: float) -> Path:
        path = tmp_path / name
        path.write_text("half")
        os.utime(path, (time.time() - seconds_ago,) * 2)
        return path

    abandoned = left(f"[file].{'0a' * 8}.part", _HOURS)
    kept = {
        left(f"[file].{'0b' * 8}.part", 0),  # somebody may still write it
        left(f"f.{'0c' * 8}.part", _HOURS),  # of another file
        left("[file].theirs.part", _HOURS),  # another user's
    }
    with replacing(tmp_path / "[file]") as temporary:
        temporary.write_text("whole")
    assert not abandoned.exists()
    assert set(tmp_path.iterdir()) == {*kept, tmp_path / "[file]"}
