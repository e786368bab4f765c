"""How a run's administrator gets the key that was made for the run."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kakeya_local.errors import StackError

_FILE_NAME = "admin-key"


@contextmanager
def handed_over(admin_key: str, directory: Path) -> Iterator[list[str]]:
    """The lines to print on standard error.

    The key itself is among them in a terminal only: elsewhere standard error ends in a journal or a log, which others
    read and which is kept. There the key is in a file of this user's, as long as this is entered.

    Raises:
        StackError: the file cannot be written.
    """
    if sys.stderr.isatty():
        yield [
            "kakeya up: clients need a key. This run's administrator has this one, which is shown only now:",
            f"export KAKEYA_API_KEY={admin_key}",
        ]
        return
    path = directory / _FILE_NAME
    _write_private(path, f"{admin_key}\n")
    try:
        yield [f"kakeya up: clients need a key. This run's administrator has the one in --api-key-file {path}"]
    finally:
        path.unlink(missing_ok=True)


def _write_private(path: Path, content: str) -> None:
    try:
        path.unlink(missing_ok=True)  # of a run that was killed; what is made anew has these rights from the start
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(content)
    except OSError as error:
        raise StackError(f"cannot write the administrator's key to {path}: {error.strerror}") from error
