"""Threads whose work may hang, and which the end of the process does not wait for."""

import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

_T = TypeVar("_T")


class DaemonThreads:
    """Does work in the order in which it comes; the threads begin with the first.

    Threads of a `concurrent.futures.ThreadPoolExecutor` are joined at exit, so that one that hangs keeps the process.

    Args:
        niceness: by how much they stand back behind the process's other threads, on systems that tell threads apart.
    """

    def __init__(self, num_threads: int, name: str, *, niceness: int = 0) -> None:
        self._niceness = niceness
        self._closed = False
        self._closing = threading.Lock()
        self._waiting: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._names = [f"{name}-{number}" for number in range(num_threads)]
        self._threads: list[threading.Thread] = []

    def submit(self, work: Callable[[], _T]) -> "Future[_T]":
        """What becomes of it; cancelled where `close` came first."""
        future: Future[_T] = Future()
        with self._closing:
            if self._closed:
                future.cancel()
            else:
                self._threads = self._threads or self._start()
                self._waiting.put((future, work))
        return future

    def close(self, timeout_seconds: float) -> bool:
        """Waits for the work that was begun, and cancels the rest; whether no thread is left."""
        deadline = time.monotonic() + timeout_seconds
        with self._closing:
            self._closed = True
            self._cancel_waiting()
            for _ in self._threads:
                self._waiting.put(None)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _start(self) -> list[threading.Thread]:
        threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in self._names]
        for thread in threads:
            thread.start()
        return threads

    def _cancel_waiting(self) -> None:
        while True:
            try:
                waiting = self._waiting.get_nowait()
            except Empty:
                return
            if waiting is not None:
                waiting[0].cancel()

    def _work(self) -> None:
        if self._niceness and sys.platform == "linux":
            own = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, own, os.getpriority(os.PRIO_PROCESS, own) + self._niceness)
        while (waiting := self._waiting.get()) is not None:
            _do(*waiting)
            del waiting  # it may hold as much as a lane does


def _do(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # the waiting caller has to learn it
        future.set_exception(error)
