"""Whether the router serves: told by a loop that nothing ends."""

import asyncio
from contextlib import suppress
from typing import cast

import structlog

from kakeya_router.health import StoreWatch
from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.fleet.worker_store import WorkerStore


class Redis:
    """Stumbles over something that nobody foresaw, and then answers."""

    num_asked = 0

    async def announce_router(self, _address: str) -> list[str]:
        self.num_asked += 1
        if self.num_asked == 1:
            raise RuntimeError("a bug")
        return []

    async def claim_layout(self) -> None:
        pass

    async def eviction_policy(self) -> str:
        return ""


async def test_a_look_that_fails_is_not_the_last() -> None:
    told: asyncio.Queue[bool] = asyncio.Queue()
    redis = Redis()
    watch = StoreWatch(
        cast(RedisConnection, redis), cast(WorkerStore, redis), "here:1", told.put, interval_seconds=0.001
    )
    with structlog.testing.capture_logs() as lines:
        watching = asyncio.create_task(watch.run())
        assert await asyncio.wait_for(told.get(), 30)
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
    assert [line["event"] for line in lines] == ["watching Redis has failed and goes on", "Redis answers; serving"]
