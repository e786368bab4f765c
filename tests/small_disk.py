"""A disk of a few MiB that a test can fill."""

import errno
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

_PIECE_BYTES = 4096


class CannotMount(Exception):
    """Why this user has no disk of that kind here."""


class SmallDisk:
    """Mounted at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Not one more piece of a file fits."""
        with self._ballast.open("ab", buffering=0) as ballast:
            while True:
                try:
                    ballast.write(bytes(_PIECE_BYTES))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    return

    def empty(self) -> None:
        """Of all that `fill` has put there."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(path: Path, mebibytes: int, num_files: int = 0) -> Iterator[SmallDisk]:
    """Mounted at a directory that is made, too; `num_files` 0: as many as fit. Raises CannotMount."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,nr_inodes={num_files}", "tmpfs", str(path)]
    try:
        subprocess.run(mount, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", "") or str(error)
        raise CannotMount(f"a disk for the test cannot be mounted, which takes root on Linux: {reason}") from error
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@contextmanager
def small_disk_or_skip(path: Path, mebibytes: int, num_files: int = 0) -> Iterator[SmallDisk]:
    """As `small_disk`; where there can be none, the test is skipped and says why."""
    with ExitStack() as mounted:
        try:
            disk = mounted.enter_context(small_disk(path, mebibytes, num_files))
        except CannotMount as error:
            pytest.skip(str(error))
        yield disk
