"""A real `kakeya` command for tests, searched for what it leaves behind."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

END_SECONDS = 150.0
_MARK = "KAKEYA_TEST_MARK"


class MarkedProcess:
    """A command with some words, and the processes that it starts.

    They are known by a mark in their environment, and Redis, which writes its title over that, by its working
    directory: the data directory.

    Args:
        streams: what `subprocess.Popen` takes of them.
        ignored: signals that are ignored when it starts, as by nohup.
        places: data directories beside the temporary one.
    """

    def __init__(
        self,
        *words: str,
        streams: dict[str, Any],
        environment: dict[str, str] | None = None,
        cwd: Path | None = None,
        ignored: Sequence[signal.Signals] = (),
        places: Sequence[str] = (),
    ) -> None:
        self._mark = uuid.uuid4().hex
        self._temporary = tempfile.mkdtemp(prefix="up")
        self._places = (self._temporary, *places)
        ignoring = "".join(f"trap '' {number:d}; " for number in ignored)
        self._popen: subprocess.Popen[bytes] = subprocess.Popen(
            ["sh", "-c", f'{ignoring}exec "$@"', "sh", sys.executable, "-P", "-m", "kakeya", *words],
            cwd=cwd,
            env=os.environ | {_MARK: self._mark, "TMPDIR": self._temporary} | (environment or {}),
            **streams,
        )
        self._started = psutil.Process(self._popen.pid).create_time()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):  # it ended by itself
                process.kill()
        self._popen.communicate()

    @property
    def temporary(self) -> Path:
        """Where its temporary files are."""
        return Path(self._temporary)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def left_files(self) -> list[str]:
        """What is left of its temporary files."""
        return os.listdir(self._temporary)

    def processes(self) -> list[psutil.Process]:
        """All processes that this command has started and that still run, itself included."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def wait_no_process(self) -> None:
        deadline = time.monotonic() + END_SECONDS
        while left := self.processes():
            assert time.monotonic() < deadline, f"still running: {[process.cmdline() for process in left]}"
            time.sleep(0.1)

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            if process.status() == psutil.STATUS_ZOMBIE or process.create_time() < self._started:
                return False
            return process.environ().get(_MARK) == self._mark or process.cwd().startswith(self._places)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False
