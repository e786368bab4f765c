"""A real `kakeya up` for tests: started, waited for, signalled, and searched for leftovers."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO

import psutil

from tests.end_to_end.marked_process import END_SECONDS, MarkedProcess

_READY_SECONDS = 90.0
_WITHOUT_HTTP = {"KAKEYA_UP_HTTP_BIND": "none"}


class UpProcess(MarkedProcess):
    """`kakeya up` with some flags.

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
        self.address = ""
        self.http = ""
        self.output = ""
        self.errors = ""
        super().__init__(
            "up",
            *flags,
            streams={"stdout": subprocess.PIPE, "stderr": subprocess.PIPE},
            environment=_WITHOUT_HTTP | (environment or {}),
            cwd=cwd,
            ignored=ignored,
            places=[value for flag, value in pairwise(flags) if flag == "--data-dir"],
        )

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
        deadline = time.monotonic() + END_SECONDS
        while not (line := _line_with(beginning, self.errors)):
            self.errors += self._read(self._popen.stderr, deadline)
        return line.removeprefix(beginning)

    def wait_end(self, number: signal.Signals | None = None) -> tuple[int, str]:
        """Sends a signal, if any; returns the exit status and what stood on standard error."""
        if number:
            self._popen.send_signal(number)
        output, errors = self._popen.communicate(timeout=END_SECONDS)
        self.output += output.decode()
        self.errors += errors.decode()
        return self._popen.returncode, self.errors

    def row(self, name: str) -> list[str]:
        """Name, address, pid and log of a process, as the table says them."""
        return next(line.split() for line in self.output.splitlines() if line.split()[:1] == [name])

    def process(self, name: str) -> psutil.Process:
        return psutil.Process(int(self.row(name)[2]))

    def log(self, name: str) -> Path:
        return Path(self.row(name)[3])

    def _read(self, pipe: IO[bytes] | None, deadline: float) -> str:
        assert pipe
        while time.monotonic() < deadline:
            if select.select([pipe], [], [], 1.0)[0]:
                read = os.read(pipe.fileno(), 65536)
                if not read:
                    raise AssertionError(f"ended too early: {self.wait_end()}")
                return read.decode()
        raise AssertionError(f"not in time: {self.output} {self.errors}")


def _line_with(beginning: str, text: str) -> str:
    """The first whole line that begins so, "" if there is none."""
    whole = text[: text.rfind("\n") + 1].splitlines()
    return next((line for line in whole if line.startswith(beginning)), "")
