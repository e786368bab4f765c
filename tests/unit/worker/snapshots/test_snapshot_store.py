"""Snapshot stores: every plugin that is installed keeps files whole, and says what it holds."""

import os
import resource
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import fsspec
import pytest

from kakeya_shared import plugins
from kakeya_worker.snapshots.snapshot_store import GROUP, SnapshotMissing, SnapshotStore, SnapshotStoreError, open_store

NAME = "pool/pool.session-1-0-40.safetensors"


@pytest.fixture(params=["path", "file", "fsspec", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    folder = tmp_path / "snapshots"
    return {
        "path": str(folder),
        "file": f"file://{folder}",
        "fsspec": f"local://{folder}",
        "memory": f"memory://{tmp_path.name}",
    }[request.param]


@pytest.fixture
def store(url: str) -> SnapshotStore:
    return open_store(url)


def names(store: SnapshotStore, prefix: str = "pool/") -> set[str]:
    return {file.name for file in store.files(prefix)}


def read(store: SnapshotStore, name: str = NAME) -> bytes:
    with closing(store.open(name)) as file:
        content = bytearray(file.seek(0, os.SEEK_END))
        file.seek(0)
        assert file.readinto(memoryview(content)) == len(content)
        return bytes(content)


def test_the_built_ins_come_in_by_the_plugins_door() -> None:
    assert {"file", "fsspec"} <= set(plugins.names(GROUP))


@pytest.mark.parametrize("content", [b"", b"x", bytes(range(256)) * 10_000], ids=len)
def test_a_file_comes_back_whole(store: SnapshotStore, content: bytes) -> None:
    store.write(NAME, content)
    assert read(store) == content
    (file,) = store.files("pool/")
    assert (file.name, file.size_bytes) == (NAME, len(content))
    assert 0 <= file.age_seconds < 60


def test_a_file_is_written_and_read_without_a_look_at_all_others(
    store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which there may be as many as sessions."""
    store.write(NAME, b"before")
    read_directories: list[object] = []

    def watched(reading: Callable[..., Any]) -> Callable[..., Any]:
        def read(*where: object) -> Any:
            read_directories.append(where)
            return reading(*where)

        return read

    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    store.write(NAME, b"after")
    assert read(store) == b"after"
    store.delete([NAME])
    assert read_directories == []
    assert not names(store)


def test_a_store_on_a_disk_says_what_is_free_there(store: SnapshotStore, url: str, tmp_path: Path) -> None:
    if url.startswith(("/", "file:")):
        disk = shutil.disk_usage(tmp_path)
        assert 0 < store.free_bytes <= disk.total
        assert abs(store.free_bytes - disk.free) < disk.total / 2  # others write meanwhile
    else:
        assert store.free_bytes == 0


def test_others_that_open_the_store_find_it(store: SnapshotStore, url: str) -> None:
    store.write(NAME, b"content")
    assert read(open_store(url)) == b"content"


def test_a_file_is_replaced(store: SnapshotStore) -> None:
    store.write(NAME, b"one")
    store.write(NAME, b"other")
    assert read(store) == b"other"
    assert names(store) == {NAME}


def test_pools_are_kept_apart(store: SnapshotStore) -> None:
    for name in (NAME, "other/s-1-0-1.safetensors"):
        store.write(name, b"content")
    assert names(store) == {NAME}
    assert names(store, "other/") == {"other/s-1-0-1.safetensors"}
    assert names(store, "nobody/") == set()


def test_what_is_deleted_is_gone_and_may_be_deleted_again(store: SnapshotStore) -> None:
    store.write(NAME, b"content")
    store.delete([NAME])
    store.delete([NAME, "pool/never-1-0-1.safetensors"])
    assert names(store) == set()
    with pytest.raises(SnapshotMissing, match=r"40\.safetensors"):
        store.open(NAME)


def test_a_directory_that_is_away_has_lost_no_file(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "snapshots"))
    store.write(NAME, b"content")
    (tmp_path / "snapshots").rename(tmp_path / "not mounted")
    with pytest.raises(SnapshotStoreError) as raised:
        store.open(NAME)
    assert not isinstance(raised.value, SnapshotMissing)


def test_a_file_is_read_from_any_place(store: SnapshotStore) -> None:
    store.write(NAME, b"0123", b"456789")
    memory = bytearray(3)
    with closing(store.open(NAME)) as file:
        assert file.seek(0, os.SEEK_END) == 10
        assert (file.seek(5), file.readinto(memoryview(memory)), bytes(memory)) == (5, 3, b"567")
        assert (file.seek(9), file.readinto(memoryview(memory)), file.readinto(memoryview(memory))) == (9, 1, 0)


def test_a_file_that_is_open_stays_as_it_was(store: SnapshotStore) -> None:
    store.write(NAME, b"one")
    memory = bytearray(3)
    with closing(store.open(NAME)) as file:
        store.write(NAME, b"another")
        store.delete([NAME])
        assert (file.readinto(memoryview(memory)), bytes(memory)) == (3, b"one")


def test_several_threads_write_at_once(store: SnapshotStore) -> None:
    contents = {f"pool/s-{number}-0-1.safetensors": bytes([number]) * 10_000 for number in range(12)}
    threads = [threading.Thread(target=store.write, args=item) for item in contents.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: read(store, name) for name in names(store)} == contents


def test_half_written_files_have_names_of_their_own(tmp_path: Path) -> None:
    """A disk that takes no more leaves nothing; a process that was killed leaves what the sweep finds."""
    store = open_store(str(tmp_path))
    store.write(NAME, b"before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises(SnapshotStoreError, match="File too large"):
            store.write(NAME, b"after", bytes(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert read(store) == b"before"
    assert names(store) == {NAME}
    (tmp_path / "pool" / "left.0123456789abcdef.part").touch()
    assert names(store) == {NAME, "pool/left.0123456789abcdef.part"}


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SnapshotStoreError, match="Not a directory"):
        open_store(str(tmp_path / "file" / "snapshots"))


def test_a_path_may_look_like_a_url_further_on(tmp_path: Path) -> None:
    folder = tmp_path / "a # b:" / "[c" / "s3:" / "d"
    open_store(str(folder).replace("s3:/", "s3://")).write("pool/name", b"content")
    assert (folder / "pool" / "name").read_bytes() == b"content"


def test_a_scheme_that_nobody_knows_is_told() -> None:
    with pytest.raises(SnapshotStoreError, match="nowhere"):
        open_store("nowhere://bucket/folder")


def test_a_file_system_that_tells_no_age_counts_as_new(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("memory://ages")
    store.write(NAME, b"content")
    find = fsspec.get_filesystem_class("memory").find

    def told(*_: object, **facts: object) -> dict[str, dict[str, object]]:
        return {f"/ages/{NAME}": {"size": 7, **facts}}

    memory = fsspec.get_filesystem_class("memory")
    for facts, age in (({}, 0.0), ({"mtime": time.time() - 50}, 50.0), ({"mtime": time.time() + 50}, 0.0)):
        monkeypatch.setattr(memory, "find", lambda *_, facts=facts, **__: told(**facts))
        (file,) = store.files("pool/")
        assert file.age_seconds == pytest.approx(age, abs=1)
    monkeypatch.setattr(memory, "find", find)
