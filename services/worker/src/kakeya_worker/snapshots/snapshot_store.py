"""The snapshot store seam: where snapshots are kept, as named files that are written once.

A store is found by the entry point group `kakeya.snapshot_store`; the entry point names a class with the constructor
and methods of `SnapshotStore`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from kakeya_shared import plugins

GROUP = "kakeya.snapshot_store"
_SCHEME = re.compile(r"[\w+.:-]+")  # fsspec chains them: simplecache::s3
INSTALL = "pip install 'kakeya-worker[snapshots]'"
ENCRYPTED = b"kakeya-sealed-1\n"
"""How a file begins that is encrypted; see `snapshot_stores.encrypted`."""


class SnapshotStoreError(Exception):
    """The store cannot be used now; the message says why."""


class SnapshotMissing(SnapshotStoreError):
    """The store works, and has no file of this name."""


@dataclass(frozen=True)
class StoredFile:
    """A file in the store; `age_seconds` since it was last written, by the store's clock where it has one."""

    name: str
    size_bytes: int
    age_seconds: float


class OpenFile(Protocol):
    """A file's content, which is read from any place on, as Python's own binary files are; may raise OSError."""

    def seek(self, offset: int, whence: int = 0, /) -> int: ...

    def readinto(self, memory: memoryview, /) -> int | None: ...

    def close(self) -> None: ...


class SnapshotStore(Protocol):
    """Files by name, such as "POOL/SESSION-1-500.safetensors". Any thread may call, several at once.

    Every method raises SnapshotStoreError.

    Args:
        url: as the user gave it; a path for the store `file`.

    Attributes:
        identity: equal for stores that hold the same files, wherever they were opened; at most 256 letters.
        free_bytes: on its disk when it was opened; 0: not known.
    """

    identity: str
    free_bytes: int

    def __init__(self, url: str) -> None: ...

    def write(self, name: str, *pieces: bytes | memoryview) -> None:
        """Keeps a file, for good once this returns: a reader finds all of it or nothing meanwhile.

        Args:
            pieces: its content, one after the other.
        """
        ...

    def open(self, name: str) -> OpenFile:
        """A file to read, as it is now: a reader that has it open goes on with it when it is replaced or deleted.

        Raises SnapshotMissing: there is none. What is in it is lost then; a store that is away says SnapshotStoreError.
        """
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Removes files; one that is not there is removed already."""
        ...

    def files(self, prefix: str) -> list[StoredFile]:
        """Files whose names begin with a folder's, such as "POOL/"."""
        ...


def open_store(url: str) -> SnapshotStore:
    """The store for a URL: the plugin of its scheme's name, else `fsspec`; a path is for `file`.

    Raises:
        PluginError: what it needs is not installed.
        SnapshotStoreError: it cannot be used.
    """
    scheme, is_url, _ = url.partition("://")
    if not (is_url and _SCHEME.fullmatch(scheme)):  # a path may hold `://`, too
        scheme = "file"
    name = scheme if scheme in plugins.names(GROUP) else "fsspec"
    store: type[SnapshotStore] = plugins.load(GROUP, name, install=INSTALL)
    return store(url)
