"""Files that are replaced as a whole or not at all."""

import contextlib
import glob
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ABANDONED = re.compile(r"\.[0-9a-f]{16}\.part")
_ABANDONED_SECONDS = 3600.0


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """As `replacing_unswept`; what a process that was killed has left behind is swept after an hour.

    It reads the names of all files of the directory.
    """
    for left in path.parent.glob(f"{glob.escape(path.name)}.*.part"):
        _sweep(left, path.name)
    with replacing_unswept(path) as temporary:
        yield temporary


@contextmanager
def replacing_unswept(path: Path) -> Iterator[Path]:
    """A temporary file beside `path`, which takes its place once it is written and synced; makes the directory.

    Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)  # other users of a shared cache may read it
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _sweep(left: Path, name: str) -> None:
    """Removes a temporary file of ours that nobody writes any more."""
    with contextlib.suppress(FileNotFoundError):  # another process sweeps, too
        if (
            _ABANDONED.fullmatch(left.name.removeprefix(name))
            and time.time() - left.stat().st_mtime > _ABANDONED_SECONDS
        ):
            left.unlink()
