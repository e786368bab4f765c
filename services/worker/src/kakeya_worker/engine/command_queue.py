"""Commands for the engine's thread: anybody hands them in, the thread runs them between two steps."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import structlog

from kakeya_shared.errors import Internal, KakeyaError

_log = structlog.get_logger()
_T = TypeVar("_T")
Command = Callable[[], None]


class CommandQueue:
    """First in, first out. After `close` commands run at once, in the caller's thread: there is nobody else."""

    def __init__(self) -> None:
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._gate = threading.Lock()  # nothing is queued once the thread has ended
        self._is_closed = False

    def put(self, command: Command) -> None:
        with self._gate:
            if not self._is_closed:
                self._commands.put(command)
                return
        command()

    def wake(self) -> None:
        """Makes the thread look again."""
        self.put(_nothing)

    def call(self, command: Callable[[], _T]) -> "Future[_T]":
        """Queues a command whose result or KakeyaError somebody waits for."""
        future: Future[_T] = Future()
        future.set_running_or_notify_cancel()

        def run() -> None:
            try:
                result = command()
            except KakeyaError as error:
                future.set_exception(error)
            except Exception:
                # A plugin's mistake is one caller's error, not the end of everybody's sessions.
                _log.exception("a command failed")
                future.set_exception(Internal("the worker failed"))
            else:
                future.set_result(result)

        self.put(run)
        return future

    def run_waiting(self) -> None:
        """Runs what waits."""
        while not self._commands.empty():
            self._commands.get()()

    def run_next(self, timeout_seconds: float | None) -> None:
        """Waits for a command and runs it; gives up after the timeout, or never for None."""
        try:
            command = self._commands.get(timeout=timeout_seconds)
        except queue.Empty:
            return
        command()

    def close(self) -> None:
        """Called by the thread at its end; runs what still waits."""
        with self._gate:
            self._is_closed = True
        self.run_waiting()


def _nothing() -> None:
    """A command that only wakes the thread."""
