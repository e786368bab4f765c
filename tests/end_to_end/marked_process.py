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
        # By descent, too: while a process becomes another program, Linux shows its environment empty.
        found = {self._running(process.pid) for process in self._tree()}
        # Not by `process_iter`: for a number that came again it goes on with the process of before.
        return [process for process in found.union(map(self._marked, psutil.pids())) if process]

    def wait_no_process(self) -> None:
        deadline = time.monotonic() + END_SECONDS
        while left := self.processes():
            assert time.monotonic() < deadline, f"still running: {[process.cmdline() for process in left]}"
            time.sleep(0.1)

    def _tree(self) -> list[psutil.Process]:
        if self._popen.poll() is not None:
            return []
        command = psutil.Process(self._popen.pid)
        return [command, *command.children(recursive=True)]

    def _marked(self, pid: int) -> psutil.Process | None:
        try:
            process = self._running(pid)
            if process and (process.environ().get(_MARK) == self._mark or process.cwd().startswith(self._places)):
                return process
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return None
        return None

    def _running(self, pid: int) -> psutil.Process | None:
        try:
            process = psutil.Process(pid)
            is_over = process.status() == psutil.STATUS_ZOMBIE or process.create_time() < self._started
        except psutil.NoSuchProcess:
            return None
        return None if is_over else process
