"""A process of its own in which calls run: an engine is alone with its memory there, or finds further packages."""

import multiprocessing
import os
import pkgutil
import sys
import tempfile
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kakeya_bench.rivals.command import RivalFailed, end_of


class CallFailed(RivalFailed):
    """A call raised, or its process ended; the message says why."""


class OwnProcess:
    """Runs one call at a time, and waits without using the CPU between them.

    Attributes:
        pid: of the process.
    """

    def __init__(self, pool: ProcessPoolExecutor, log: Path) -> None:
        self._pool, self._log = pool, log
        self.pid: int = self.call("os:getpid")

    def call(self, target: str, *args: Any, **kwargs: Any) -> Any:
        """What is called returns; what it keeps in its module is there at the next call.

        Args:
            target: "module:function", or "module:object.method". The module is imported there alone.
            args, kwargs: are pickled, as what is returned.

        Raises:
            CallFailed
        """
        try:
            returned, error = self._pool.submit(_call, target, args, kwargs).result()
        except BrokenProcessPool as broken:
            raise CallFailed(f"the process of {target} ended:\n{end_of(self._log)}") from broken
        if error:
            raise CallFailed(f"{target} failed:\n{error}")
        return returned


@contextmanager
def own_process(packages: Path | None = None) -> Iterator[OwnProcess]:
    """A process of this Python, until the end.

    Args:
        packages: where it finds further packages, beside those that are installed here.
    """
    with (
        tempfile.NamedTemporaryFile(prefix="kakeya-own-process-", suffix=".log") as log,
        ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(log.name, packages)
        ) as pool,
    ):
        yield OwnProcess(pool, Path(log.name))


def _begin(log: str, packages: Path | None) -> None:
    """What libraries print goes to the log, and so does what Python says when it ends."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    for printed in (sys.stdout, sys.stderr):
        os.dup2(file, printed.fileno())
    if packages:
        sys.path.append(str(packages))


def _call(target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, str]:
    """What was returned, or why nothing was: an error's class may not be known to the other side."""
    try:
        return pkgutil.resolve_name(target)(*args, **kwargs), ""
    except Exception:
        return None, traceback.format_exc()
