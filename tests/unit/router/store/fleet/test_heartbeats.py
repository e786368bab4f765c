"""Heartbeats are written in groups, and each has its own answer."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.fleet import heartbeat_store
from kakeya_router.store.fleet.heartbeat_store import HeartbeatStore, Lane, Said
from kakeya_router.store.keys import POOLS
from kakeya_router.store.session_record import Epoch, PoolName
from kakeya_shared.errors.tree import StoreUnavailable
from kakeya_shared.process.detached_tasks import DetachedTasks
from tests.redis_server import RedisServer
from tests.unit.router.admission_stores import POOL
from tests.unit.router.session_stores import identity
from tests.unit.router.store.script_steps import JOINED, OPEN, drop
from tests.unit.router.store.script_world import ONE, TWO, World

LANE, ORPHAN = Lane(ONE, Epoch(1), 0, 0, ""), Lane(TWO, Epoch(1), 0, 0, "")


async def test_those_that_come_together_are_one_group_and_each_has_its_own_answer(world: World) -> None:
    await (OPEN + JOINED).bring_about(world)
    await world.workers.announce_router("r:1")
    world.redis.answers.clear()
    mine, again, other, unknown = await asyncio.gather(
        world.heartbeats.heartbeat(Said(identity("w", "i-w"), lanes=[LANE, ORPHAN])),
        world.heartbeats.heartbeat(Said(identity("w", "i-w"), lanes=[LANE])),
        world.heartbeats.heartbeat(Said(identity("v", "i-v"), lanes=[ORPHAN])),
        world.heartbeats.heartbeat(Said(identity("x", "i-x"), lanes=[ORPHAN])),
    )
    assert [(each.is_registered, each.routers, each.orphans) for each in (mine, again, other, unknown)] == [
        (True, ["r:1"], [ORPHAN]),
        (True, ["r:1"], []),
        (True, ["r:1"], [ORPHAN]),
        (False, ["r:1"], []),
    ]
    told = [("heartbeat", "renewed")] * 3 + [("heartbeat", "unknown")]
    lanes = [("report_lane", outcome) for outcome in ("updated", "orphan", "updated", "orphan")]
    assert world.redis.answers == [*told, *lanes]


async def test_a_group_is_of_one_pool(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a Cluster pools are on different nodes, and none waits for another's."""
    groups: list[int] = []
    scripts = RedisConnection.scripts

    async def counted(self: RedisConnection, name: str, calls: Iterable[Any], before: Iterable[Any] = ()) -> Any:
        given = [*calls]
        groups.append(len(given))
        return await scripts(self, name, given, before)

    monkeypatch.setattr(RedisConnection, "scripts", counted)
    of_another = identity("w", "i-w")._replace(pool=PoolName("q"))
    beats = [Said(identity("w", "i-w")), Said(of_another), Said(identity("w", "i-w"))]
    await asyncio.gather(*map(world.heartbeats.heartbeat, beats))
    assert sorted(groups) == [1, 2]
    assert await world.redis.call(lambda redis: redis.smembers(POOLS)) == {POOL, "q"}


async def test_one_that_leaves_takes_no_other_along(world: World) -> None:
    leaving = asyncio.create_task(world.heartbeats.heartbeat(Said(identity("w", "i-w"))))
    staying = asyncio.create_task(world.heartbeats.heartbeat(Said(identity("w", "i-w"), number=3)))
    await asyncio.sleep(0)
    leaving.cancel()
    assert (await staying).is_registered
    (worker,) = await world.workers.workers(POOL)
    assert worker.heartbeat_number == 3


async def test_many_lanes_are_asked_for_some_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat_store, "_LANES_AT_ONCE", 2)
    lanes = [LANE._replace(epoch=Epoch(number)) for number in range(2, 7)]
    answer = await world.heartbeats.heartbeat(Said(identity("w", "i-w"), lanes=lanes))
    assert answer.orphans == lanes


async def test_a_worker_that_was_dropped_reports_nothing(world: World) -> None:
    await (OPEN + drop()).bring_about(world)
    assert not (await world.heartbeats.heartbeat(Said(identity("w", "i-w"), lanes=[LANE]))).is_registered


async def test_without_redis_each_of_a_group_is_told(own_redis: RedisServer) -> None:
    redis = RedisConnection(own_redis.url)
    heartbeats = HeartbeatStore(redis, DetachedTasks(), 60)
    own_redis.stop()
    beats = (heartbeats.heartbeat(Said(identity("w", "i-w"))) for _ in range(3))
    assert [type(each) for each in await asyncio.gather(*beats, return_exceptions=True)] == [StoreUnavailable] * 3
    await redis.aclose()
