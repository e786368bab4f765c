"""Sessions of a pool as they are listed, swept and forgotten."""
# ruff: noqa: F403, F405  # all the words of the table

from kakeya_router.store.session_record import Incarnation, LaneState, SessionId, State, parse_ranges
from kakeya_router.store.sessions.session_lists import TenantUsage
from kakeya_router.workers.worker_sweep import WorkerSweep
from tests.unit.router.admission_stores import POOL
from tests.unit.router.store.script_steps import *
from tests.unit.router.store.script_world import *

OTHER = reserve(of=TWO) + mark_open(of=TWO)


async def idle(world: World, limit: int = 9) -> set[str]:
    return {record.session_id for record in await world.sessions.idle_of(POOL, WORKER.incarnation, limit)}


async def test_an_id_without_a_pool_is_nobodys(world: World) -> None:
    assert await world.sessions.get(SessionId("nonsense")) is None


async def test_a_session_is_found_by_its_request_tenant_and_incarnation(world: World) -> None:
    sessions = world.sessions
    await reserve(request_id="r", tenant="a").bring_about(world)
    assert await sessions.of_request(POOL, "a", "r") == ONE
    assert await sessions.of_request(POOL, "", "r") is None
    assert await sessions.usage(POOL) == {"a": TenantUsage(1, 100, 0)}
    assert [found.session_id for found in await sessions.of_incarnation(POOL, WORKER.incarnation, 10)] == [ONE]
    assert await sessions.of_incarnation(POOL, Incarnation("nobody"), 10) == []


async def test_what_a_lane_retains_is_known_when_it_is_open(world: World) -> None:
    await (OPENING + mark_open(lane=LaneState(9, 50, "0-1,5-9"))).bring_about(world)
    record = await world.record()
    assert parse_ranges(record.retained) == [range(1), range(5, 9)]
    assert record.lane.num_dropped_tokens == 4


async def test_a_session_that_is_deleted_leaves_nothing(world: World) -> None:
    before = await world.held()
    for made in (ran(3), OPEN + begin(A) + extend(A, 0, [1, 2]) + lose(A)):
        await (made + close() + delete()).bring_about(world)
        assert await world.held() == before
    swept = SWEPT + close() + delete()
    await swept.bring_about(world)
    assert (await world.held()).keys() == before.keys() - {"worker", "lease", "ledger"} | {"lost"}


async def test_the_idle_sessions_of_an_incarnation(world: World) -> None:
    await (OPEN + OTHER + begin(A, of=TWO)).bring_about(world)
    assert await idle(world) == {ONE}
    await world.sessions.release_operation(await world.record(TWO), A)
    await begin(B, by=HASTY, of=TWO).bring_about(world)  # and its router vanished
    assert await idle(world) == {ONE, TWO}
    assert len(await idle(world, 1)) == 1
    await close().bring_about(world)
    assert await idle(world) == {TWO}
    assert await world.sessions.idle_of(POOL, Incarnation("nobody"), 9) == []


async def sweep_all(world: World) -> None:
    await WorkerSweep(world.sessions, world.workers, RETENTION).sweep(POOL, WORKER.incarnation)


async def test_a_sweep_takes_nothing_from_a_living_incarnation(world: World) -> None:
    await OPEN.bring_about(world)
    await sweep_all(world)
    assert (await world.record()).state is State.OPEN


async def test_a_sweep_leaves_a_session_to_its_running_operation(world: World) -> None:
    vanished = OTHER + begin(B, by=HASTY, of=TWO)
    await (vanished + OPEN + begin(A) + extend(A, 0, [1]) + drop()).bring_about(world)
    before = await world.record()
    await sweep_all(world)
    assert (await world.record(), await world.journaled()) == (before, [1])
    assert await renew(A).call(world) == "renewed"
    assert (await world.record(TWO)).state is State.PARKED
    assert await world.sessions.renew_operation(await world.record(TWO), B) == "gone"
    assert await world.workers.lost(POOL) == []
    assert await world.sessions.of_incarnation(POOL, WORKER.incarnation, 10) == []
    assert await lose(A, start=1, token_ids=[2]).call(world) == "parked"
    assert await world.journaled() == [1, 2]
