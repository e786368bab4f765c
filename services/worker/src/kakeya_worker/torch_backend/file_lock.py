"""Locks between processes of one host."""

import contextlib
import fcntl
import os
import weakref
from pathlib import Path

import structlog

_log = structlog.get_logger()


class FileLock:
    """Held by one process at a time, until this object is gone or the process is; waits for it.

    It is only there to save work: where a file system has no locks, nobody waits.

    Args:
        path: of an empty file that is there meanwhile.
    """

    def __init__(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            while not self._acquired(path):
                pass  # who held it has removed the file: the next one holds another

    def _acquired(self, path: Path) -> bool:
        """Waits for the file that is there; False where it is there no more once it is locked. Raises OSError."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _wait(descriptor, path)
            acquired = _is_at(path, descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        if acquired:
            weakref.finalize(self, _release, descriptor, path)
        else:
            os.close(descriptor)
        return acquired


def _wait(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # which of them depends on the system
        _log.info("another process is at it; waiting", lock=str(path))
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _release(descriptor: int, path: Path) -> None:
    path.unlink(missing_ok=True)
    os.close(descriptor)
