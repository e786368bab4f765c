"""The processes of a run: alive, quiet in their logs, and not growing."""

import itertools
import json
from collections.abc import Iterator, Set

import psutil

from tests.integration.processes import Process, Runtime

_BAD_LEVELS = ("error", "critical")
_BAD_TEXTS = ("Traceback (most recent call last)", "never retrieved", "never awaited", "unforeseen")
# How gRPC itself says that a client cancelled in the very moment in which it was answered.
_CLIENT_LEFT = "ExecuteBatchError"
# What the worker and then the router say of a session whose lane somebody wrote to behind the router's back.
_DESERVED = ("invariant violated", "session failed")
_MAX_SHOWN = 400


class ProcessWatch:
    """Args:
    at_worker: session ids that a fuzzer has named to the worker itself; grows meanwhile.
    """

    def __init__(self, made: Runtime, at_worker: Set[str] = frozenset()) -> None:
        self._at_worker = at_worker
        self._processes: dict[str, Process] = {}
        self._read: dict[str, int] = {}
        for process in (*made.routers, *made.workers, *made.shims):
            self.follow(process)

    def follow(self, process: Process) -> None:
        """From now on, as those that were there at first."""
        name = process.log.stem
        self._processes[name], self._read[name] = process, 0

    def forget(self, process: Process) -> None:
        """It is to be killed, and its log is of no more interest."""
        del self._processes[process.log.stem]

    def problems(self) -> Iterator[str]:
        """What has happened since the last look."""
        for name, process in self._processes.items():
            if process.process.poll() is not None:
                yield f"{name} (process {process.process.pid}) ended with {process.process.returncode}"
            for is_event, lines in itertools.groupby(self._new_lines(name, process), lambda line: line.startswith("{")):
                for text in lines if is_event else ["\n".join(lines)]:
                    problem = self._problem(text)
                    if problem:
                        yield f"{name} logged: {problem}"

    def resident_bytes(self) -> dict[str, int]:
        pids = {name: process.process.pid for name, process in self._processes.items()}
        return {name: psutil.Process(pid).memory_info().rss for name, pid in pids.items()}

    def _new_lines(self, name: str, process: Process) -> list[str]:
        with process.log.open("rb") as log:
            log.seek(self._read[name])
            text = log.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read[name] += len(whole)
        return whole.decode(errors="replace").splitlines()

    def _problem(self, text: str) -> str:
        """What is wrong about an event of a log, or about lines that are none; empty: nothing."""
        if _CLIENT_LEFT in text:
            return ""
        suspicious = any(bad in text for bad in _BAD_TEXTS)
        try:
            event = json.loads(text)
        except ValueError:
            return text[-_MAX_SHOWN:] if suspicious else ""
        if event.get("event") in _DESERVED and event.get("session_id") in self._at_worker:
            return ""
        if not (suspicious or event.get("level") in _BAD_LEVELS):
            return ""
        return f"{event.get('level')} {event.get('event')}: {str(event.get('exception', ''))[-_MAX_SHOWN:]}"
