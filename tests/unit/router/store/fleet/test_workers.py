"""Workers and routers as they are listed, from their coming to their end."""

import pytest

from kakeya_router.store.fleet.worker_store import WorkerStore
from tests.unit.router.admission_stores import POOL
from tests.unit.router.store.script_steps import OPEN, SILENT, A, beat, begin, drain, drop, report, tunnelled
from tests.unit.router.store.script_world import Steps, World


@pytest.mark.parametrize(
    ("mark", "unmark", "is_leaving"),
    [(beat(leaving=True), beat(), True), (drain(), drain(False), False)],
    ids=["by itself", "by an operator"],
)
async def test_a_worker_that_is_drained_has_no_room(
    world: World, mark: Steps, unmark: Steps, *, is_leaving: bool
) -> None:
    for step, is_drained in ((None, False), (mark, True), (unmark, False)):
        if step is not None:
            await step.bring_about(world)
        (worker,) = await world.workers.workers(POOL)
        assert (worker.draining, worker.has_room) == (is_drained, not is_drained)
        assert worker.leaving == (is_leaving and is_drained)


async def test_a_worker_that_nobody_can_dial_has_room_while_it_has_a_tunnel(world: World) -> None:
    for step, routers in ((tunnelled(), []), (beat(tunnels="r:1,s:1"), ["r:1", "s:1"]), (beat(), [])):
        await step.bring_about(world)
        (worker,) = await world.workers.workers(POOL)
        assert worker.is_tunnelled
        assert (worker.tunnel_routers, worker.has_room) == (routers, bool(routers))


async def test_a_worker_that_is_dropped_is_lost(world: World) -> None:
    assert await world.workers.lapsed(POOL, 10) == []
    await SILENT.bring_about(world)
    assert [worker.worker_id for worker in await world.workers.lapsed(POOL, 10)] == ["w"]
    await drop(lapsed_only=True).bring_about(world)
    assert (await world.workers.workers(POOL), await world.workers.lost(POOL)) == ([], ["i-w"])


async def test_announce_router(world: World) -> None:
    brief, lasting = WorkerStore(world.redis, 0), WorkerStore(world.redis, 10)
    assert await brief.announce_router("a:1") == []
    assert await lasting.announce_router("b:1") == ["b:1"]
    assert await lasting.announce_router("c:1") == ["b:1", "c:1"]
    await lasting.forget_router("b:1")
    assert await lasting.routers() == ["c:1"]


async def test_scripts_survive_a_flush_of_the_script_cache(world: World) -> None:
    await OPEN.bring_about(world)
    await world.redis.call(lambda redis: redis.script_flush())
    assert (await begin(A).call(world)).outcome == "begun"
    await world.redis.call(lambda redis: redis.script_flush())
    assert await report(0).call(world) == "updated"
