"""Commands for the engine's thread: any thread hands them in, the engine's runs them between two steps."""

import math
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import structlog

from kakeya_shared.errors.tree import Internal, KakeyaError

_log = structlog.get_logger()
_T = TypeVar("_T")
Command = Callable[[], None]


class Postponed(Exception):
    """Raised by a command that cannot run yet, before it has changed anything.

    Args:
        waiting: what waits for the same; the command joins it. Its end hands all of it to `CommandQueue.run`.
    """

    def __init__(self, waiting: list[Command]) -> None:
        self.waiting = waiting


class CommandQueue:
    """First in, first out, but long commands wait for all others: a stop is not held up by copies.

    After `close` commands run at once, in the caller's thread: there is nobody else.
    """

    def __init__(self) -> None:
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._long_commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._gate = threading.Lock()  # nothing is queued once the thread has ended
        self._is_closed = False

    def put(self, command: Command, *, is_long: bool = False) -> None:
        with self._gate:
            if not self._is_closed:
                if is_long:
                    self._long_commands.put(command)
                self._commands.put(_nothing if is_long else command)
                return
        self.run(command)

    @staticmethod
    def run(command: Command) -> None:
        """At once, or when what it waits for is over. On the engine's thread, while there is one."""
        try:
            command()
        except Postponed as postponed:
            postponed.waiting.append(command)

    def wake(self) -> None:
        """Makes the thread look again."""
        self.put(_nothing)

    def call(self, command: Callable[[], _T], *, is_long: bool = False) -> "Future[_T]":
        """Queues a command whose result or KakeyaError a caller waits for.

        A long one does not run if its future was cancelled before. Others cannot be cancelled: a session is to be
        closed even if nobody waits for the answer.
        """
        future: Future[_T] = Future()
        if not is_long:
            future.set_running_or_notify_cancel()

        def run() -> None:
            if is_long and not future.set_running_or_notify_cancel():
                return
            try:
                result = command()
            except Postponed:
                raise
            except KakeyaError as error:
                future.set_exception(error)
            except Exception:
                # A plugin's mistake is one caller's error, not the end of everybody's sessions.
                _log.exception("a command failed")
                future.set_exception(Internal("the worker failed"))
            else:
                future.set_result(result)

        self.put(run, is_long=is_long)
        return future

    def run_waiting(self, max_long_seconds: float = math.inf) -> None:
        """Runs what waits; of the long commands it begins one, and others until so much time has passed."""
        for _ in range(self._commands.qsize()):
            self.run(self._commands.get())
        started = time.perf_counter()
        while not self._long_commands.empty():
            self.run(self._long_commands.get())
            if time.perf_counter() - started >= max_long_seconds:
                break

    def run_next(self, timeout_seconds: float | None) -> None:
        """Waits for a command and runs it, unless it is long; gives up after the timeout, or never for None."""
        if not self._long_commands.empty():
            timeout_seconds = 0.0
        try:
            command = self._commands.get(timeout=timeout_seconds)
        except queue.Empty:
            return
        self.run(command)

    def close(self) -> None:
        """Called by the thread at its end; runs what still waits."""
        with self._gate:
            self._is_closed = True
        self.run_waiting()


def _nothing() -> None:
    """A command that only wakes the thread."""
