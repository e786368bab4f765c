"""Tasks that outlive the call that started them."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


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
        return await asyncio.shield(self.start(work))

    async def drain(self, timeout_seconds: float) -> None:
        """Waits for all of them, and cancels those that take longer."""
        if not self._running:
            return
        _, late = await asyncio.wait(self._running, timeout=timeout_seconds)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
