"""A real `kakeya up` for tests: started, waited for, signalled, and searched for leftovers."""

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import psutil

_READY_SECONDS = 90.0
_END_SECONDS = 150.0
_MARK = "KAKEYA_TEST_MARK"
_WITHOUT_HTTP = {"KAKEYA_UP_HTTP_BIND": "none"}


class UpProcess:
    """`kakeya up` with some flags.

    The processes it starts are known by a mark in their environment, and Redis, which writes its title over that, by
    its working directory: the data directory.

    Args:
        ignored: signals that are ignored when it starts, as by nohup.

    HTTP is left out unless a flag asks for it: its default port would be the same for all.

    Attributes:
        address: where gRPC is served, once `wait_ready` returned.
        http: where HTTP is, "" without it.
    """

    def __init__(
        self,
        *flags: str,
        environment: dict[str, str] | None = None,
        cwd: Path | None = None,
        ignored: Sequence[signal.Signals] = (),
    ) -> None:
        self._mark = uuid.uuid4().hex
        self._temporary = tempfile.mkdtemp(prefix="up")
        self._places = (self._temporary, *(value for flag, value in pairwise(flags) if flag == "--data-dir"))
        self.address = ""
        self.http = ""
        self.output = ""
        self.errors = ""
        ignoring = "".join(f"trap '' {number:d}; " for number in ignored)
        self._popen = subprocess.Popen(
            ["sh", "-c", f'{ignoring}exec "$@"', "sh", sys.executable, "-P", "-m", "kakeya", "up", *flags],
            cwd=cwd,
            env=os.environ | _WITHOUT_HTTP | {_MARK: self._mark, "TMPDIR": self._temporary} | (environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
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

    def wait_ready(self) -> str:
        """The address of gRPC, from the `ready` line."""
        deadline = time.monotonic() + _READY_SECONDS
        while not (line := _line_with("ready grpc=", self.output)):
            self.output += self._read(self._popen.stdout, deadline)
        places = dict(place.split("=") for place in line.split()[1:])
        self.address, self.http = places["grpc"], places.get("http", "")
        return self.address

    def wait_said(self, beginning: str) -> str:
        """The rest of the line on standard error that begins so."""
        deadline = time.monotonic() + _END_SECONDS
        while not (line := _line_with(beginning, self.errors)):
            self.errors += self._read(self._popen.stderr, deadline)
        return line.removeprefix(beginning)

    def wait_end(self, number: signal.Signals | None = None) -> tuple[int, str]:
        """Sends a signal, if any; returns the exit status and what stood on standard error."""
        if number:
            self._popen.send_signal(number)
        output, errors = self._popen.communicate(timeout=_END_SECONDS)
        self.output += output.decode()
        self.errors += errors.decode()
        return self._popen.returncode, self.errors

    def left_files(self) -> list[str]:
        """What is left of its temporary files."""
        return os.listdir(self._temporary)

    def processes(self) -> list[psutil.Process]:
        """All processes that this `kakeya up` has started and that still run, itself included."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def row(self, name: str) -> list[str]:
        """Name, address, pid and log of a process, as the table says them."""
        return next(line.split() for line in self.output.splitlines() if line.split()[:1] == [name])

    def process(self, name: str) -> psutil.Process:
        return psutil.Process(int(self.row(name)[2]))

    def log(self, name: str) -> Path:
        return Path(self.row(name)[3])

    def wait_no_process(self) -> None:
        deadline = time.monotonic() + _END_SECONDS
        while left := self.processes():
            assert time.monotonic() < deadline, f"still running: {[process.cmdline() for process in left]}"
            time.sleep(0.1)

    def _read(self, pipe: IO[bytes] | None, deadline: float) -> str:
        assert pipe
        while time.monotonic() < deadline:
            if select.select([pipe], [], [], 1.0)[0]:
                read = os.read(pipe.fileno(), 65536)
                if not read:
                    raise AssertionError(f"ended too early: {self.wait_end()}")
                return read.decode()
        raise AssertionError(f"not in time: {self.output} {self.errors}")

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            if process.status() == psutil.STATUS_ZOMBIE or process.create_time() < self._started:
                return False
            return process.environ().get(_MARK) == self._mark or process.cwd().startswith(self._places)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False


def _line_with(beginning: str, text: str) -> str:
    """The first whole line that begins so, "" if there is none."""
    whole = text[: text.rfind("\n") + 1].splitlines()
    return next((line for line in whole if line.startswith(beginning)), "")
