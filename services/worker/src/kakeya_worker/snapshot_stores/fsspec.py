"""Snapshots at any URL that fsspec knows: s3://BUCKET/FOLDER, gs://..., sftp://..., memory://..."""

import hashlib
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from io import BytesIO
from typing import Any

import fsspec

from kakeya_worker.snapshots.snapshot_store import SnapshotMissing, SnapshotStoreError, StoredFile


class FsspecSnapshotStore:
    """An object store shows an object when all of it is there. Where a file system shows what is half written, its
    checksum tells: nobody is told of a snapshot before it was read back.
    """

    def __init__(self, url: str) -> None:
        with _translated(url):
            self._files, self._root = fsspec.core.url_to_fs(url)
        self.identity = hashlib.sha256(url.rstrip("/").encode()).hexdigest()
        self.free_bytes = 0  # nobody knows

    def write(self, name: str, *pieces: bytes | memoryview) -> None:
        path = self._path(name)
        with _translated(path):
            self._files.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            self._files.pipe_file(path, b"".join(pieces))

    def open(self, name: str) -> BytesIO:
        """All of it at once: object stores take long for each request."""
        path = self._path(name)
        with _translated(path):
            try:
                return BytesIO(self._files.cat_file(path))
            except FileNotFoundError as error:
                raise SnapshotMissing(f"{path}: there is no such file") from error

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            path = self._path(name)
            with _translated(path):
                try:
                    self._files.rm_file(path)
                except FileNotFoundError:
                    continue

    def files(self, prefix: str) -> list[StoredFile]:
        path = self._path(prefix.rstrip("/"))
        with _translated(path):
            self._files.invalidate_cache()
            found: dict[str, dict[str, Any]] = self._files.find(path, detail=True)
        root = self._path("")
        return [
            StoredFile(name.removeprefix(root), facts["size"], _age_seconds(facts)) for name, facts in found.items()
        ]

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"


def _age_seconds(facts: dict[str, Any]) -> float:
    """As far as the file system tells; what tells nothing counts as new, and is never swept."""
    for key in ("LastModified", "mtime", "modified", "updated", "created"):
        at = facts.get(key)
        if isinstance(at, datetime):
            return max(0.0, datetime.now(at.tzinfo).timestamp() - at.timestamp())
        if isinstance(at, int | float):
            return max(0.0, time.time() - at)
    return 0.0


@contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except SnapshotStoreError:
        raise
    except Exception as error:  # fsspec's file systems each have errors of their own
        raise SnapshotStoreError(f"{path}: {error!r}") from error
