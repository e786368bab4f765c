"""Snapshots in a directory: of this host, or one that all hosts see."""

import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from kakeya_shared.process.whole_file import replacing_unswept
from kakeya_worker.snapshots.snapshot_store import SnapshotMissing, SnapshotStoreError, StoredFile

_IDENTITY_FILE = "store-id"


class FileSnapshotStore:
    """Each file is written beside its place, synced, and moved there; so is its directory's entry.

    What a process that was killed has left half written is among the files, under a name of its own: it is swept with
    those that no session has. There may be a hundred thousand files, so that a write looks at none but its own.

    Args:
        url: a path, or file://PATH. The directory is made.
    """

    def __init__(self, url: str) -> None:
        self._root = Path(os.path.expanduser(url.removeprefix("file://")))
        with _translated():
            self._root.mkdir(parents=True, exist_ok=True)
            self.identity = _identity(self._root / _IDENTITY_FILE)
            self.free_bytes = shutil.disk_usage(self._root).free

    def write(self, name: str, *pieces: bytes | memoryview) -> None:
        path = self._root / name
        with _translated():
            with replacing_unswept(path) as temporary, temporary.open("wb") as file:
                file.writelines(pieces)
            _sync_directory(path.parent)

    def open(self, name: str) -> FileIO:
        with _translated():
            try:
                return (self._root / name).open("rb", buffering=0)
            except FileNotFoundError as error:
                (self._root / _IDENTITY_FILE).stat()  # else it is the directory that is away
                raise SnapshotMissing(f"{name}: there is no such file") from error

    def delete(self, names: Iterable[str]) -> None:
        with _translated():
            for name in names:
                (self._root / name).unlink(missing_ok=True)

    def files(self, prefix: str) -> list[StoredFile]:
        now, found = time.time(), []
        with _translated():
            for path in (self._root / prefix).glob("*"):
                with suppress(FileNotFoundError):  # others remove files meanwhile
                    facts = path.stat()
                    name = str(path.relative_to(self._root))
                    found.append(StoredFile(name, facts.st_size, max(0.0, now - facts.st_mtime)))
        return found


def _identity(path: Path) -> str:
    """What the first who opened the directory has written into it: hosts may see one directory under several paths."""
    if not path.exists():
        candidate = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
        candidate.write_text(secrets.token_hex(16))
        with suppress(FileExistsError):  # another was first
            os.link(candidate, path)
        candidate.unlink()
    return path.read_text().strip()


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SnapshotStoreError(f"{error.filename or 'the snapshot directory'}: {error.strerror}") from error
