from pathlib import Path

import pytest

from kakeya_shared.process import disk_room
from kakeya_shared.process.disk_room import shortage
from tests.small_disk import small_disk_or_skip


def test_a_disk_is_full_until_there_is_room_to_spare(tmp_path: Path) -> None:
    with small_disk_or_skip(tmp_path / "disk", mebibytes=1) as disk:
        place = disk.path / "not" / "made" / "yet"
        assert shortage(place) == ""
        disk.fill()
        assert shortage(place) == f"the disk of {place} is full: 0.0 MiB are free, 0.1 MiB more are needed"
        disk.empty()
        assert shortage(place) == ""


def test_a_large_disk_need_not_have_a_share_of_it_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_room, "_ENOUGH_BYTES", 0)
    assert shortage(tmp_path) == ""
    monkeypatch.setattr(disk_room, "_ENOUGH_BYTES", 1 << 60)
    monkeypatch.setattr(disk_room, "_ENOUGH_OF_SMALL_DISK", 1.5)
    assert "MiB more are needed" in shortage(tmp_path)


def test_files_are_room_too(tmp_path: Path) -> None:
    with small_disk_or_skip(tmp_path / "disk", mebibytes=1, num_files=3) as disk:
        for number in range(2):
            assert shortage(disk.path) == ""
            (disk.path / str(number)).touch()
        assert shortage(disk.path) == f"the disk of {disk.path} is full: it takes no further file"


def test_what_cannot_be_looked_at_has_room(tmp_path: Path) -> None:
    assert shortage(tmp_path / ("x" * 300)) == ""
