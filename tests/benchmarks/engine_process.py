"""A contestant's process in `make bench-engine`, as the bench sees it."""

import json
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.engine_case import Case
from tests.benchmarks.logged_command import end_of
from tests.benchmarks.python_environment import ROOT

_STOP_SECONDS = 20.0
_SAMPLE_SECONDS = 0.01


class ContestantFailed(Exception):
    """A contestant could not do what it was told; the message says why."""


@dataclass(frozen=True)
class Memory:
    """A process's memory; None where the system does not tell.

    Attributes:
        peak_rss_bytes: resident, with what it maps of files.
        peak_anonymous_bytes: resident, of its own, looked at a hundred times a second.
    """

    peak_rss_bytes: int | None
    peak_anonymous_bytes: int | None


class ContestantProcess:
    """Obeys one command at a time, and waits without using the CPU between them.

    Args:
        log: what it prints to stderr.
    """

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self._process, self._log = process, log

    def ask(self, do: str, **arguments: Any) -> Any:
        """The answer to a command of engine_contestant.py. Raises ContestantFailed."""
        assert self._process.stdin
        assert self._process.stdout
        try:
            print(json.dumps({"do": do, **arguments}), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = self._process.wait(_STOP_SECONDS)
            raise ContestantFailed(f"{self._process.args!r} ended with status {status}:\n{end_of(self._log)}")
        answer = json.loads(line)
        if "error" in answer:
            raise ContestantFailed(f"{self._process.args!r} failed to {do}:\n{answer['error']}")
        return answer["answer"]

    def measure(self, case: Case, num_times: int) -> list[float]:
        """See `Contestant`."""
        seconds: list[float] = self.ask("measure", case=case.fields, num_times=num_times)
        return seconds

    @contextmanager
    def watched(self) -> Iterator[list[Memory]]:
        """Of what happens inside, the memory is in the list at the end."""
        found: list[Memory] = []
        self._forget_peak()
        peak, is_over = [self._status_bytes("RssAnon")], threading.Event()

        def watch() -> None:
            while not is_over.wait(_SAMPLE_SECONDS):
                peak[0] = max(peak[0] or 0, self._status_bytes("RssAnon") or 0) or None

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield found
        finally:
            is_over.set()
            thread.join()
        found.append(Memory(self._status_bytes("VmHWM"), peak[0]))

    def _status_bytes(self, field: str) -> int | None:
        try:
            lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        except OSError:
            return None
        return next((int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:")), None)

    def _forget_peak(self) -> None:
        """So that VmHWM is the peak from now on."""
        reset = Path(f"/proc/{self._process.pid}/clear_refs")
        if reset.exists():
            reset.write_text("5")


@contextmanager
def running(python: str | Path, module: str) -> Iterator[ContestantProcess]:
    """Starts a contestant and ends it.

    Args:
        python: of the environment that has what it needs.
    """
    with tempfile.NamedTemporaryFile("w", prefix="kakeya-contestant-", suffix=".log") as log:
        command: Sequence[str | Path] = [python, "-m", module]
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            yield ContestantProcess(process, Path(log.name))
        finally:
            _stop(process)


def _stop(process: "subprocess.Popen[str]") -> None:
    assert process.stdin
    assert process.stdout
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdin.close()
    process.stdout.close()
