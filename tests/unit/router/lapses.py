"""What comes about by the mere passing of time, without its passing: the test says when."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.unit.router.fake_worker import FakeWorker
from tests.unit.router.stack import Stack


class Clock:
    """By which routers know for how long Redis has answered; it stands unless the test has it go on.

    As long as it stands, nothing that has lapsed is reaped or taken over: for that Redis has to answer for a while.
    """

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Waits:
    """The waits in the queue, in place of `asyncio` where they begin. They end by their own time, or when told to.

    A wait that is to be over only after something has happened is long, and is told then.
    """

    def __init__(self) -> None:
        self._are_over = False
        self._running: list[asyncio.Timeout] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @asynccontextmanager
    async def timeout_at(self, until: float | None) -> AsyncIterator[None]:
        async with asyncio.timeout_at(0.0 if self._are_over else until) as timeout:
            self._running.append(timeout)
            try:
                yield
            finally:
                self._running.remove(timeout)

    def end(self) -> None:
        """Nobody waits any more: not who waits now, and not who comes later."""
        self._are_over = True
        for timeout in self._running:
            timeout.reschedule(asyncio.get_running_loop().time())


async def expire(stack: Stack, session_id: str) -> None:
    """Has a session's time be over."""
    await stack.redis.zadd("kakeya:{tiny}:expiry", {session_id: 1}, xx=True)


async def die(worker: FakeWorker) -> None:
    """Its process ends; its lease still runs."""
    worker.stop_beating()
    worker.lanes.clear()
    await worker.vanish()


async def be_lost(worker: FakeWorker) -> None:
    """It dies, and its lease lapses."""
    await die(worker)
    await worker.lapse()
