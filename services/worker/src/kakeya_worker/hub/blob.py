"""One file of a model as it lies in the hub's cache: under the name of its own digest, so that it can be checked.

The hub's client begins a file anew whenever a download was broken off. Ours goes on where it was: a part stays beside
the blobs, and becomes one only when its digest is right.
"""

import fcntl
import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from huggingface_hub.file_download import http_get
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import tqdm

from kakeya_worker.hub.hub_error import HubError

_SHA256_LETTERS = 64
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Blob:
    """A file of a model.

    Attributes:
        path: in the model's repository.
        num_bytes: its size.
        digest: its SHA-256, 64 letters, or, of a small file, git's SHA-1 of it, 40 letters.
    """

    path: str
    num_bytes: int
    digest: str

    @classmethod
    def of(cls, file: RepoFile) -> "Blob":
        """As the hub describes it."""
        return cls(file.path, file.size, file.lfs.sha256 if file.lfs else file.blob_id)


class Progress(tqdm):
    """A bar on a terminal, unless HF_HUB_DISABLE_PROGRESS_BARS is set, and nothing elsewhere."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        hidden = {} if sys.stderr.isatty() else {"disable": True}
        super().__init__(*arguments, **options | hidden)  # type: ignore[no-untyped-call]  # of tqdm


def fetch(blob: Blob, directory: Path, url: str, headers: dict[str, str]) -> int:
    """Downloads what is missing of a blob; returns how many bytes were there already.

    Args:
        directory: of the cache's blobs.

    Raises:
        HubError: another process is at it, or what came has another digest; that is removed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    part = directory / f"{blob.digest}.part"
    descriptor = os.open(part, os.O_RDWR | os.O_CREAT, 0o644)
    with open(descriptor, "r+b") as file:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:  # which of them depends on the system
            raise HubError(f"another process downloads {blob.path} at this moment") from error
        num_there = _num_usable(file, blob)
        http_get(
            url,
            file,
            resume_size=num_there,
            headers=headers,
            expected_size=blob.num_bytes,
            displayed_filename=blob.path,
            tqdm_class=Progress,
        )
        file.flush()
        found = digest(part, blob.digest)
        if found != blob.digest:
            part.unlink()
            raise HubError(
                f"{blob.path} came damaged: its digest is {found}, and the hub says {blob.digest}. It is removed; "
                "pull it again"
            )
        os.fsync(descriptor)
        part.replace(directory / blob.digest)
    return num_there


def digest(path: Path, like: str) -> str:
    """The digest of a file, of the kind that another one has: SHA-256, or SHA-1 as git makes it of a blob."""
    with path.open("rb") as file:
        if len(like) == _SHA256_LETTERS:
            return hashlib.file_digest(file, "sha256").hexdigest()
        hashed = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
        while read := file.read(_READ_BYTES):
            hashed.update(read)
        return hashed.hexdigest()


def _num_usable(file: BinaryIO, blob: Blob) -> int:
    """Of a part that was begun before; it is written on from there."""
    num_there = file.seek(0, os.SEEK_END)
    if num_there > blob.num_bytes:
        num_there = file.seek(0)
        file.truncate()
    return num_there
