"""The layout that the data in Redis has: a router names its own, and does not run on a newer one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
import redis.asyncio
import structlog

from kakeya_router import command
from kakeya_router.health import StoreWatch
from kakeya_router.program import Router
from kakeya_router.settings import RouterSettings
from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.keys import LAYOUT, SCHEMA
from kakeya_router.store.servers.shared_redis import SharedRedis
from kakeya_shared.errors.tree import StoreUnavailable
from kakeya_shared.process.service_process import EXIT_CONFIG, StartError
from tests.unit.router.stack import Stack

Write = Callable[["redis.asyncio.Redis"], Awaitable[Any]]

UNKNOWN: dict[str, Write] = {
    "newer": lambda store: store.set(SCHEMA, LAYOUT + 1),
    "garbage": lambda store: store.set(SCHEMA, "one"),
    "empty": lambda store: store.set(SCHEMA, ""),
    "no text": lambda store: store.hset(SCHEMA, "layout", LAYOUT),
}


async def test_a_router_names_the_layout_where_nobody_has(stack: Stack) -> None:
    await stack.router()
    assert await stack.redis.get(SCHEMA) == str(LAYOUT)
    await stack.redis.delete(SCHEMA)
    client = await stack.router()  # beside one that has started before
    assert await stack.redis.get(SCHEMA) == str(LAYOUT)
    await stack.worker(client)
    assert await client.session()


@pytest.mark.parametrize("layout", range(LAYOUT + 1))
async def test_a_layout_that_it_knows_stays_as_it_is(stack: Stack, layout: int) -> None:
    await stack.redis.set(SCHEMA, layout)
    await stack.router()
    assert await stack.redis.get(SCHEMA) == str(layout)


@pytest.mark.parametrize("write", UNKNOWN.values(), ids=UNKNOWN)
async def test_a_layout_that_it_does_not_know_is_a_start_error(stack: Stack, write: Write) -> None:
    await write(stack.redis)
    before = await stack.redis.dump(SCHEMA)
    with pytest.raises(
        StartError, match=r"^this router knows no layout of data but 1, and kakeya:schema in Redis is .*"
    ):
        async with Router(RouterSettings(redis=stack.url, bind="127.0.0.1:0")):
            raise AssertionError
    assert await stack.keys() == {SCHEMA}
    assert await stack.redis.dump(SCHEMA) == before


def test_it_is_said_in_one_line(redis_url: str, capfd: pytest.CaptureFixture[str]) -> None:
    with redis.Redis.from_url(redis_url, protocol=2) as store:
        store.set(SCHEMA, 2)
    assert command.main(["--redis", redis_url, "--bind", "127.0.0.1:0"]) == EXIT_CONFIG
    (line,) = capfd.readouterr().err.splitlines()
    assert line == (
        "kakeya router: error: this router knows no layout of data but 1, and kakeya:schema in Redis is '2'; "
        "run a newer router, or see --redis"
    )


async def nothing_else(_routers: Sequence[str]) -> None:
    """Is said of this router."""


async def test_who_has_started_before_redis_looks_when_it_answers(redis_url: str) -> None:
    connection, told = RedisConnection(redis_url), asyncio.Queue[bool]()
    store = WorkerStore(connection, worker_lease_seconds=60)
    another = redis.asyncio.Redis.from_url(redis_url, protocol=2)
    await another.set(SCHEMA, 2)
    watch = StoreWatch(connection, store, "here:1", told.put, nothing_else, interval_seconds=0.001)
    with structlog.testing.capture_logs() as lines:
        watching = asyncio.create_task(watch.run())
        assert not await asyncio.wait_for(told.get(), 60)
        with pytest.raises(StoreUnavailable, match="run a newer router"):
            await store.routers()
        assert await another.keys() == [SCHEMA.encode()]
        await another.delete(SCHEMA)
        assert await asyncio.wait_for(told.get(), 60)
        assert await store.routers() == ["here:1"]
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
    assert [line["event"] for line in lines] == ["not serving", "Redis answers; serving"]
    assert "kakeya:schema in Redis is '2'" in lines[0]["reason"]
    await connection.aclose()
    await another.aclose()


async def test_as_long_as_it_does_not_know_the_layout_it_does_nothing(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, execute = RedisConnection(redis_url), SharedRedis.execute

    async def away(*_: Any) -> Any:
        raise redis.ConnectionError("away")

    monkeypatch.setattr(SharedRedis, "execute", away)
    with pytest.raises(StoreUnavailable):
        await connection.claim_layout()
    with pytest.raises(StoreUnavailable):
        await connection.now_ms()
    monkeypatch.setattr(SharedRedis, "execute", execute)
    await connection.claim_layout()
    assert await connection.now_ms()
    monkeypatch.setattr(SharedRedis, "execute", away)
    with pytest.raises(StoreUnavailable):
        await connection.claim_layout()
    assert await connection.now_ms()  # it knew it before
    await connection.aclose()
