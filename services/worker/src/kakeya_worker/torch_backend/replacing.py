"""Files that are replaced as a whole or not at all."""

import contextlib
import glob
import os
import re
import secrets
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ABANDONED = re.compile(r"\.[0-9a-f]{16}\.part")
_ABANDONED_SECONDS = 3600.0


class Replacement:
    """A temporary file beside `path` that takes its place at `commit`; makes the directory.

    Without a commit it is gone with this object, or with the process. What a process that was killed has left behind is
    swept after an hour. Raises OSError.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(f"{glob.escape(path.name)}.*.part"):
            _sweep(left, path.name)
        self._path = path
        self.temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
        self.discard = weakref.finalize(self, self.temporary.unlink, missing_ok=True)

    def commit(self) -> None:
        """Syncs what was written and puts it in its place."""
        with self.temporary.open("rb") as file:
            os.fsync(file.fileno())
        self.temporary.chmod(0o644)  # other users of a shared cache may read it
        self.temporary.replace(self._path)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The temporary file of a `Replacement`, committed at the end unless an exception gets there first."""
    replacement = Replacement(path)
    try:
        yield replacement.temporary
        replacement.commit()
    finally:
        replacement.discard()


def _sweep(left: Path, name: str) -> None:
    """Removes a temporary file of ours that nobody writes any more."""
    with contextlib.suppress(FileNotFoundError):  # another process sweeps, too
        if (
            _ABANDONED.fullmatch(left.name.removeprefix(name))
            and time.time() - left.stat().st_mtime > _ABANDONED_SECONDS
        ):
            left.unlink()
