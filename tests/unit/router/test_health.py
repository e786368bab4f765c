"""Whether the router serves: told by a loop that nothing ends."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

import pytest
import structlog

from kakeya_router import health
from kakeya_router.health import StoreWatch
from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_shared.errors.tree import StoreUnavailable


class Redis:
    """Raises what it is given, one at each look, and then answers."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)

    async def announce_router(self, _address: str) -> list[str]:
        if self._errors:
            raise self._errors.pop(0)
        return []

    async def claim_layout(self) -> None:
        pass

    async def follow(self) -> None:
        pass


async def nothing_else(_routers: Sequence[str]) -> None:
    """Is said of this router."""


async def nothing(_redis: RedisConnection) -> Sequence[str]:
    return ()


async def watched(redis: Redis, num_told: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[bool], list[str]]:
    """What a watch tells, so many times, and what it logs meanwhile."""
    told: asyncio.Queue[bool] = asyncio.Queue()
    for check in ("check_rights", "faults"):  # test_self_check.py has them
        monkeypatch.setattr(health, check, nothing)
    watch = StoreWatch(
        cast(RedisConnection, redis), cast(WorkerStore, redis), "here:1", told.put, nothing_else, interval_seconds=0.001
    )
    with structlog.testing.capture_logs() as lines:
        watching = asyncio.create_task(watch.run())
        serving = [await asyncio.wait_for(told.get(), 60) for _ in range(num_told)]
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
    return serving, [line["event"] for line in lines]


async def test_a_look_that_fails_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    serving, lines = await watched(Redis(RuntimeError("a bug")), 1, monkeypatch)
    assert serving == [True]
    assert lines == ["watching Redis has failed and goes on", "Redis answers; serving"]


async def test_while_redis_is_away_the_router_does_not_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    away = [StoreUnavailable(f"Redis does not answer: {number} MiB are free") for number in (2, 1)]
    serving, lines = await watched(Redis(*away), 2, monkeypatch)
    assert serving == [False, True]
    assert lines == ["not serving", "Redis answers; serving"]
