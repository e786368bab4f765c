"""Tasks that outlive the call that started them."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog

from kakeya_shared.errors.tree import KakeyaError

T = TypeVar("T")

_log = structlog.get_logger()


class Outcome(Exception):
    """Base of what may become of detached work without anything being wrong with it."""


def unheard(task: asyncio.Task[Any]) -> None:
    """Says that nobody will hear what a task raises: an answer to a client who has gone is dropped, all else logged."""
    task.add_done_callback(_drop_answer)


def _drop_answer(task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, KakeyaError | Outcome):
        _log.error("detached work failed", exc_info=error)


def is_cancelled() -> bool:
    """Whether the running task itself was told to end, as opposed to what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class DetachedTasks:
    """Keeps what must be completed although the client is gone: a cancelled call cancels none of these."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def complete(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for `work`; when the waiting is cancelled, the work still goes on to its end."""
        task = self.start(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            unheard(task)
            raise

    async def drain(self, timeout_seconds: float) -> int:
        """Waits for all of them, also for those that they start, and cancels those that take longer: how many these
        were.
        """
        loop, num_late = asyncio.get_running_loop(), 0
        until = loop.time() + timeout_seconds
        while self._running:
            _, late = await asyncio.wait(self._running, timeout=max(0.0, until - loop.time()))
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
            num_late += len(late)
        return num_late
