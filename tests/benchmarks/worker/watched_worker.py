"""A worker in a process of its own, without a router, whose anonymous memory is watched."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kakeya_bench.rivals.command import CommandFailed, end_of
from kakeya_shared.health_command import check
from tests.integration.processes import wait_until
from tests.redis_server import free_port

_SAMPLE_SECONDS = 0.005
_START_SECONDS = 900.0


class WatchedWorker:
    """Use `running` to make one.

    Attributes:
        peak_anonymous_bytes: the most there has been at once so far.
    """

    def __init__(self, address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.address = address
        self.peak_anonymous_bytes = 0
        self._process = process
        self._log = log

    def anonymous_bytes(self) -> int:
        """Resident memory that belongs to no file, now (Linux: /proc)."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:")), 0)

    def logged(self, event: str) -> dict[str, Any] | None:
        """The first log line of an event."""
        lines = (json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{"))
        return next((line for line in lines if line["event"] == event), None)

    def wait_until_serving(self) -> None:
        """Raises CommandFailed: it has ended instead."""
        wait_until(self._serves_or_has_ended, "the worker serves", _START_SECONDS)
        if self._process.poll() is not None:
            raise CommandFailed(f"the worker ended with status {self._process.returncode}:\n{end_of(self._log)}")

    def watch(self, is_over: threading.Event) -> None:
        while not is_over.wait(_SAMPLE_SECONDS) and self._process.poll() is None:
            self.peak_anonymous_bytes = max(self.peak_anonymous_bytes, self.anonymous_bytes())

    def _serves_or_has_ended(self) -> bool:
        return self._process.poll() is not None or check(self.address) == "SERVING"


@contextmanager
def running(flags: Sequence[str], log: Path) -> Iterator[WatchedWorker]:
    """Starts `kakeya worker` and stops it in the end; it may not serve yet.

    Args:
        flags: beside --bind.
    """
    address = f"127.0.0.1:{free_port()}"
    is_over = threading.Event()
    with log.open("wb") as output:
        command = [sys.executable, "-m", "kakeya_worker", "--bind", address, *flags]
        process = subprocess.Popen(command, stdout=output, stderr=output)
    worker = WatchedWorker(address, process, log)
    watching = threading.Thread(target=worker.watch, args=(is_over,))
    watching.start()
    try:
        yield worker
    finally:
        is_over.set()
        watching.join()
        process.terminate()
        process.wait()
