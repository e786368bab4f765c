"""The workers as a router has seen them: what is read when, and whom a placement is asked about."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.fleet.fleet_store import FleetStore
from kakeya_router.store.fleet.worker_store import Identity, WorkerStore
from kakeya_router.store.session_record import Incarnation, PoolName
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.workers import placement
from kakeya_router.workers.fleet import Fleet
from kakeya_router.workers.placement import FirstFit, LeastLoaded, Placement
from kakeya_shared.process.detached_tasks import DetachedTasks
from tests.unit.router.admission_stores import KEYS, LANE_BYTES, POOL, worker_record
from tests.unit.router.fake_worker import FakeWorker
from tests.unit.router.stack import Client, Stack

NUM = 30


class AllOfThem:
    """As plugins of others are."""

    def order(self, workers: Sequence[WorkerRecord]) -> list[WorkerRecord]:
        return [*workers]


@dataclass
class Seen:
    """Thirty workers in Redis, with two lanes each, and a fleet that has not looked yet."""

    redis: RedisConnection
    workers: WorkerStore
    fleet: Fleet

    async def fill(self, number: int, num_lanes: int = 2) -> None:
        key = KEYS.worker(_worker(number).worker_id)
        await self.redis.call(lambda redis: redis.hset(key, "reserved_bytes", num_lanes * LANE_BYTES))

    async def some(self, also: str = "") -> list[str]:
        return sorted(worker.worker_id for worker in await self.fleet.some(None, Incarnation(also)))


def _worker(number: int, **fields: Any) -> WorkerRecord:
    return replace(worker_record(f"w-{number:02}"), **fields)


def _seen(redis: RedisConnection, plugin: Placement) -> Seen:
    workers, tasks = WorkerStore(redis, 60), DetachedTasks()
    fleet = Fleet(workers, FleetStore(redis), tasks, placement.some_of(plugin), interval_seconds=3600)
    return Seen(redis, workers, fleet)


@pytest.fixture
async def connection(redis_url: str) -> AsyncIterator[RedisConnection]:
    connection = RedisConnection(redis_url)
    for number in range(NUM):
        await WorkerStore(connection, 60).join(_worker(number))
    yield connection
    await connection.aclose()


async def test_a_placement_is_asked_about_a_few_of_many(connection: RedisConnection) -> None:
    seen = _seen(connection, LeastLoaded())
    asked = Counter[str]()
    for _ in range(100):
        asked.update(await seen.some())
    assert sum(asked.values()) == 800
    assert len(asked) == NUM, "all of them in turn"
    first = _seen(connection, FirstFit())
    await first.fill(0)
    assert await first.some() == [f"w-{number:02}" for number in range(1, 9)]
    assert len(await _seen(connection, AllOfThem()).some()) == NUM - 1


async def test_those_without_room_are_asked_only_where_no_other_is(connection: RedisConnection) -> None:
    seen = _seen(connection, LeastLoaded())
    for number in range(NUM - 1):
        await seen.fill(number)
    assert await seen.some() == [f"w-{NUM - 1}"]
    await seen.fill(NUM - 1)
    await seen.fleet.look()
    assert len(found := await seen.fleet.some()) == 8
    assert not any(worker.has_room for worker in found)


async def test_of_each_kind_there_are_some_and_one_that_is_named(connection: RedisConnection) -> None:
    seen = _seen(connection, LeastLoaded())
    await seen.workers.join(_worker(99, fingerprint="other"))
    await seen.workers.join(_worker(98, pool="q"))
    await seen.fill(5)
    found = await seen.some("i-w-05")
    assert {"w-05", "w-98", "w-99"} < {*found}
    assert len(found) == 8 + 3
    assert [each.worker_id for each in await seen.fleet.some({PoolName("q")})] == ["w-98"]
    assert [each.worker_id for each in seen.fleet.workers(PoolName("q"))] == ["w-98"]
    await seen.workers.join(_worker(97, pool="r", model="n"))
    of_n = await seen.fleet.some_anew(None, Incarnation(""), "n")
    assert [each.worker_id for each in of_n] == ["w-97"]
    assert len(await seen.fleet.some(None, Incarnation(""), "nobody's")) == 8 + 3


async def test_they_are_as_they_are_now(connection: RedisConnection) -> None:
    """Between two looks one is filled, one leaves, and one comes back as another incarnation."""
    seen = _seen(connection, AllOfThem())
    await seen.fleet.look()
    await seen.fill(0, 1)
    await seen.workers.drop(Identity(POOL, _worker(1).worker_id, _worker(1).incarnation), lapsed_only=False)
    await seen.workers.join(_worker(2, incarnation="new"))
    found = {str(worker.worker_id): worker for worker in await seen.fleet.some()}
    assert found["w-00"].free_bytes == LANE_BYTES
    assert found.keys() == {f"w-{number:02}" for number in range(NUM)} - {"w-01", "w-02"}
    anew = {str(worker.worker_id): worker.incarnation for worker in await seen.fleet.some_anew(None, Incarnation(""))}
    assert (anew["w-02"], "w-01" in anew, len(anew)) == ("new", False, NUM - 1)


async def test_who_asks_while_a_look_goes_on_shares_the_next(connection: RedisConnection) -> None:
    seen, looks = _seen(connection, AllOfThem()), list[int]()
    seen.fleet.on_look = lambda incarnations: looks.append(len(incarnations))
    first = asyncio.create_task(seen.fleet.look())
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # it has begun
    await seen.workers.join(_worker(50))
    await asyncio.gather(first, *(seen.fleet.look() for _ in range(20)))
    assert len(looks) <= 3
    assert looks[-1] == NUM + 1


async def test_a_hash_that_is_gone_is_no_worker(connection: RedisConnection) -> None:
    """Evicted, or dropped between the list and its reading."""
    seen = _seen(connection, AllOfThem())
    await seen.fleet.look()
    await connection.call(lambda redis: redis.delete(KEYS.worker(_worker(3).worker_id)))
    await seen.fleet.look()
    assert len(seen.fleet.workers()) == NUM - 1
    reader, hashes = FleetStore(connection), connection.hashes

    async def without_one(names: Sequence[str]) -> list[dict[str, str]]:
        return [{} if name.endswith("w-04") else each for name, each in zip(names, await hashes(names), strict=True)]

    connection.hashes = without_one  # type: ignore[method-assign]  # it is dropped in just that moment
    assert len(await reader.workers()) == NUM - 2


async def test_a_look_that_nobody_waits_for(connection: RedisConnection) -> None:
    seen = _seen(connection, LeastLoaded())
    look = seen.fleet.look_soon()
    assert seen.fleet.look_soon() is look, "two that come together share it"
    await look
    assert len(seen.fleet.workers()) == NUM


async def test_a_worker_that_joins_is_looked_at(stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    look_soon = Fleet.look_soon

    def counted(fleet: Fleet) -> "asyncio.Task[None]":
        looks.append(look_soon(fleet))
        return looks[-1]

    async with FakeWorker("worker-z") as worker:
        monkeypatch.setattr(Fleet, "look_soon", counted)
        await client.join(worker)
        assert looks
        await looks[0]
        assert (await client.workers())["worker-z"].worker_id == "worker-z"
