"""Files that are replaced as a whole or not at all."""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SUFFIX = ".part"
_ABANDONED_SECONDS = 3600.0


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path`, which takes its place once it is written and synced; makes the directory.

    What a process that was killed has left behind is swept after an hour. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for abandoned in path.parent.glob(f"*{_SUFFIX}"):
        if time.time() - abandoned.stat().st_mtime > _ABANDONED_SECONDS:
            abandoned.unlink(missing_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}{_SUFFIX}")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)  # other users of a shared cache may read it
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
