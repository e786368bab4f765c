"""The lane of an idle session for who waits: whose it may be, and when it is not touched."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from kakeya_router.lanes.closing import Closing
from kakeya_router.lanes.idle_lanes import Candidate, GivesWay, IdleLanes
from kakeya_router.lanes.parking import Parking
from kakeya_router.snapshots.snapshotting import Snapshotting
from kakeya_router.store.outcomes import ReserveSession
from kakeya_router.store.session_record import Claim, PoolName, SessionId, SessionRecord, WorkerId
from kakeya_router.store.sessions.creation_store import CreationStore
from kakeya_router.store.sessions.session_changes import Cause, Intent, TimesToLive
from kakeya_router.store.sessions.session_lists import SessionLists
from kakeya_router.store.sessions.session_store import Answer
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_shared.errors.tree import QueueTimedOut, SessionNotFound
from kakeya_shared.process.detached_tasks import DetachedTasks
from tests.unit.router.admission_stores import KEYS, POOL, Stores, fleet_on, stores_on, worker_record
from tests.unit.router.fake_worker import FakeWorker
from tests.unit.router.keyed import keyed_on
from tests.unit.router.lanes.test_queue import waiting
from tests.unit.router.session_stores import LaneAtRest, identity
from tests.unit.router.stack import Client, Stack, begin_ahead, eventually

CLOSE_IDLE: dict[str, Any] = {"admission": "close-idle", "close_idle_after_seconds": 0.0}
RUN = Claim("run")
GENERATE = Intent("generate", {})
RETENTION = TimesToLive(lost_ms=1000, parked_ms=3_600_000)
IDLE = "kakeya:{tiny}:idle"


@pytest.fixture
async def stores(redis_url: str) -> AsyncIterator[Stores]:
    async with stores_on(redis_url) as stores:
        await stores.workers.join(worker_record(num_lanes=8))
        yield stores


def idle_lanes_of(stores: Stores, closing: type[Closing]) -> tuple[WorkerClients, IdleLanes]:
    """With the connections that they have, which are to be closed."""
    workers, tasks = WorkerClients(), DetachedTasks()
    fleet = fleet_on(stores.redis, tasks)
    snapshotting = Snapshotting(
        stores.sessions, workers, fleet, tasks, turns=1, recovery_seconds=1, journal_tokens=1_000
    )
    parking = Parking(stores.sessions, workers, fleet, snapshotting, tasks, parked_seconds=1)
    closes = closing(stores.sessions, workers, snapshotting, tasks)
    return workers, IdleLanes(stores.sessions, closes, parking, tasks, idle_seconds=0, others=GivesWay.IS_CLOSED)


async def idle_ids(stores: Stores) -> list[str]:
    ids: list[str] = await stores.redis.call(lambda redis: redis.zrange(KEYS.idle, 0, -1))
    return ids


async def age(stores: Stores, name: str, seconds: int) -> None:
    """As if the session had been idle for so much longer."""
    await stores.redis.call(lambda redis: redis.zincrby(KEYS.idle, -1000 * seconds, f"p.{name}"))


async def test_only_open_sessions_without_an_operation_are_idle(stores: Stores) -> None:
    await stores.reserve("one")
    assert await idle_ids(stores) == []
    await stores.close((await stores.sessions.all_of(POOL))[0])
    one, two, three = [await stores.opened(name) for name in ("one", "two", "three")]
    assert set(await idle_ids(stores)) == {"p.one", "p.two", "p.three"}
    for record in (one, two, three):
        await stores.sessions.begin_operation(record, RUN, GENERATE)
    assert await idle_ids(stores) == []
    await stores.sessions.end(one, RUN, LaneAtRest(3, 30, "0-3", 0, [1, 2, 3]))
    await stores.sessions.release_operation(two, RUN)
    await stores.sessions.fail(three, RUN, "inv1")
    assert await idle_ids(stores) == ["p.two", "p.one"]  # a release changes nothing
    await stores.sessions.begin_operation(one, RUN, GENERATE)
    assert await stores.sessions.lose(one, RUN, RETENTION, 3, []) == "parked"
    await stores.close(two)
    assert await idle_ids(stores) == []
    moved = await stores.sessions.begin_operation(one, RUN, GENERATE)
    assert moved.outcome == "moved"
    assert (await stores.sessions.begin_operation(moved.record, RUN, GENERATE)).outcome == "parked"
    assert await stores.sessions.release_operation(moved.record, RUN)
    assert await idle_ids(stores) == []
    four, five = await stores.opened("four"), await stores.opened("five")
    await stores.sessions.begin_operation(five, RUN, GENERATE)
    await stores.sessions.extend_journal(five, RUN, 0, [1, 2, 3], 2)
    await stores.sessions.end(five, RUN, LaneAtRest(3, 30, "0-3", 3))
    assert set(await idle_ids(stores)) == {"p.four", "p.five"}
    await stores.workers.drop(identity("w", "i-w"), lapsed_only=False)
    assert await stores.sessions.lose_all([four, five], RETENTION) == ["parked", "lost"]
    assert await idle_ids(stores) == []


async def test_the_claim_is_checked_again_in_redis(stores: Stores) -> None:
    async def claim(name: str, wanted_by: str, idle_ms: int = 30_000) -> str:
        record = await stores.sessions.get(SessionId(f"p.{name}"))
        assert record is not None
        reply = await stores.sessions.begin_close(
            record, Claim("idle"), Cause.IDLE, idle_ms=idle_ms, wanted_by=wanted_by
        )
        return reply.outcome

    for name, tenant in (("r1", "rich"), ("r2", "rich"), ("r3", "rich"), ("p1", "poor")):
        await stores.opened(name, tenant)
        await age(stores, name, 20)
    assert await claim("r1", "poor") == "kept"  # not for so long
    await age(stores, "r1", 20)
    busy, second = await stores.sessions.get(SessionId("p.r1")), await stores.sessions.get(SessionId("p.r2"))
    assert busy is not None
    assert second is not None
    await stores.sessions.begin_operation(busy, RUN, GENERATE)
    assert await claim("r1", "poor") == "kept"
    await stores.sessions.release_operation(busy, RUN)
    await age(stores, "r1", 40)
    assert await claim("p1", "rich", 0) == "kept"  # nobody takes from who has less
    assert await claim("r1", "poor") == "claimed"
    assert await claim("r1", "poor") == "kept"
    assert await stores.sessions.delete(busy, Claim("idle"), 0)
    assert await claim("r2", "poor", 0) == "kept"  # one lane more: the poor would be the rich then
    await stores.redis.call(lambda redis: redis.zadd(KEYS.idle, {"p.r2": 1}))
    await stores.sessions.begin_operation(second, RUN, GENERATE)
    await stores.redis.call(lambda redis: redis.zadd(KEYS.idle, {"p.r2": 1}))  # as an older router leaves it
    assert await claim("r2", "rich", 0) == "kept"
    await stores.sessions.release_operation(second, RUN)
    assert await claim("r2", "rich", 0) == "claimed"  # its own
    assert await claim("p1", "new", 0) == "kept"
    assert await claim("p1", "poor", 0) == "claimed"


@pytest.fixture
async def greedy(stack: Stack) -> Client:
    return await stack.router(**CLOSE_IDLE)


async def test_the_longest_idle_session_makes_room(stack: Stack, greedy: Client) -> None:
    worker = await stack.worker(greedy, num_lanes=3)
    first, second, third = [await greedy.session() for _ in range(3)]
    await greedy.append(first, [1])  # used last
    worker.flowing.clear()
    appending = asyncio.create_task(greedy.append(third, [1]))
    await eventually(lambda: _appending(worker))
    opened = await _while_one_is_busy(greedy, worker)
    worker.flowing.set()
    await appending
    with pytest.raises(SessionNotFound):
        await greedy.info(second)
    assert set(worker.lanes) == {first, third, await opened}
    assert (await greedy.workers())["worker-a"].num_sessions == 3


async def _while_one_is_busy(client: Client, worker: FakeWorker) -> asyncio.Task[str]:
    """A call whose lane is free, and which the worker has not opened yet."""
    task = asyncio.create_task(client.session())

    async def asked() -> bool:
        return worker.calls["OpenSession"] == 4

    await eventually(asked)
    return task


async def _appending(worker: FakeWorker) -> bool:
    return worker.calls["Append"] == 2


async def test_where_nothing_is_idle_for_so_long_it_waits(stack: Stack) -> None:
    rules: dict[str, Any] = {"admission": "close-idle", "close_idle_after_seconds": 3600}
    client = await stack.router(**rules, queue_seconds=0.5)
    await stack.worker(client, num_lanes=1)
    held = await client.session()
    with pytest.raises(QueueTimedOut):
        await client.session()
    call = await waiting(stack, await stack.router(**rules, queue_seconds=600))
    await client.close(held)
    await call


async def test_what_becomes_idle_later_is_noticed(stack: Stack) -> None:
    client = await stack.router(admission="close-idle", close_idle_after_seconds=3600, queue_seconds=600)
    await stack.worker(client, num_lanes=1)
    held = await client.session()
    call = await waiting(stack, client)
    await stack.redis.zincrby(IDLE, -3_600_000, held)
    await call
    with pytest.raises(SessionNotFound):
        await client.info(held)


async def test_each_waiter_takes_one_lane_and_only_where_it_can_use_it(stack: Stack, greedy: Client) -> None:
    await stack.worker(greedy, "worker-a", num_lanes=2, fingerprint="aa")
    await stack.worker(greedy, "worker-b", num_lanes=2, fingerprint="bb")
    on_a = [await greedy.session(fingerprint="aa") for _ in range(2)]
    on_b = [await greedy.session(fingerprint="bb") for _ in range(2)]
    calls = await asyncio.gather(*(greedy.create(fingerprint="bb") for _ in range(2)))
    assert [created.fingerprint for created in calls] == ["bb", "bb"]
    for session_id in on_a:
        await greedy.info(session_id)
    for session_id in on_b:
        with pytest.raises(SessionNotFound):
            await greedy.info(session_id)
    workers = await greedy.workers()
    assert [workers[name].num_sessions for name in ("worker-a", "worker-b")] == [2, 2]


async def test_many_idle_sessions_of_others_are_looked_through(
    stack: Stack, greedy: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kakeya_router.lanes.idle_lanes._BATCH", 2)
    await stack.worker(greedy, "worker-a", num_lanes=5, fingerprint="aa")
    await stack.worker(greedy, "worker-b", num_lanes=1, fingerprint="bb")
    on_a = [await greedy.session(fingerprint="aa") for _ in range(5)]
    await greedy.session(fingerprint="bb")
    await greedy.session(fingerprint="bb")
    for session_id in on_a:
        await greedy.info(session_id)


async def test_tenants_take_from_who_has_more_and_never_from_who_has_less(redis_url: str) -> None:
    async with keyed_on(redis_url, **CLOSE_IDLE, queue_seconds=600) as keyed:
        rich, poor = await keyed.tenant("rich"), await keyed.tenant("poor")
        hasty = await keyed.router(**CLOSE_IDLE, queue_seconds=1.2)
        worker = await keyed.worker(num_lanes=4)
        poor_session = await poor.session()
        rich_sessions = [await rich.session() for _ in range(3)]
        await poor.append(poor_session, [1])  # so that it is not the longest idle
        taken = await poor.session()
        with pytest.raises(SessionNotFound):
            await rich.info(rich_sessions[0])
        rest = await rich.session()  # its own has been idle for longest
        assert set(worker.lanes) == {poor_session, taken, rich_sessions[2], rest}
        for session_id in (rest, rich_sessions[2]):
            await begin_ahead(keyed.stack, session_id)
            await keyed.stack.redis.zrem(IDLE, session_id)
        with pytest.raises(QueueTimedOut):
            await keyed.client(rich.secret, hasty).session()  # the idle ones are of who has as much
        for session_id in (poor_session, taken):
            await poor.info(session_id)


async def test_tenants_that_hold_nearly_the_same_take_nothing_from_each_other(redis_url: str) -> None:
    async with keyed_on(redis_url, **CLOSE_IDLE, queue_seconds=600) as keyed:
        one, other = await keyed.tenant("one"), await keyed.tenant("other")
        await keyed.worker(num_lanes=3)
        theirs = [await one.session(), await one.session()]
        await other.session()
        await other.session()  # in place of its own
        for session_id in theirs:
            await one.info(session_id)


async def test_who_has_lost_its_turn_makes_no_room(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve, made, lost = CreationStore.reserve, list[dict[str, set[str]]](), asyncio.Event()

    async def overtaken(store: CreationStore, *args: Any, **fields: Any) -> Answer[ReserveSession]:
        if args[-1] and not lost.is_set():
            lost.set()
            return Answer(ReserveSession.WAIT, args[0])
        return await reserve(store, *args, **fields)

    async def make_room(
        _: IdleLanes, tenant: str, turns: dict[str, set[str]], spared: str, *, only_disposable: bool = False
    ) -> bool:
        if lost.is_set() and not only_disposable:
            made.append(turns)
        return False

    monkeypatch.setattr(CreationStore, "reserve", overtaken)
    monkeypatch.setattr(IdleLanes, "make_room", make_room)
    client = await stack.router(admission="close-idle", close_idle_after_seconds=3600)
    await stack.worker(client, "worker-a", num_lanes=1)
    await stack.worker(client, "worker-b", num_lanes=1)
    held = [await client.session(), await client.session()]
    call = await waiting(stack, client)
    await client.close(held[0])
    await call
    assert made == []


async def test_a_session_that_is_used_at_the_last_moment_is_kept(stores: Stores) -> None:
    class Late(Closing):
        async def close(self, record: SessionRecord, cause: Cause, **fields: Any) -> int | None:
            if record.session_id == "p.one":
                await stores.sessions.begin_operation(record, RUN, GENERATE)
            return await super().close(record, cause, **fields)

    workers, idle_lanes = idle_lanes_of(stores, Late)
    await stores.opened("one")
    assert not await idle_lanes.make_room("", {POOL: {WorkerId("w")}}, SessionId(""))
    await stores.opened("two")
    assert not await idle_lanes.make_room(
        "", {POOL: {WorkerId("v")}, PoolName("other"): {WorkerId("w")}}, SessionId("")
    )
    assert await idle_lanes.make_room("", {POOL: {WorkerId("w")}}, SessionId(""))
    assert [record.session_id for record in await stores.sessions.all_of(POOL)] == ["p.one"]
    await workers.aclose()


async def test_two_who_make_room_do_not_go_for_one_session(stores: Stores) -> None:
    goes = asyncio.Event()
    closed: list[SessionId] = []

    class Slow(Closing):
        async def close(self, record: SessionRecord, cause: Cause, **fields: Any) -> int | None:
            closed.append(record.session_id)
            await goes.wait()
            return await super().close(record, cause, **fields)

    workers, idle_lanes = idle_lanes_of(stores, Slow)
    await stores.opened("one")
    turns = {POOL: {WorkerId("w")}}
    first = asyncio.create_task(idle_lanes.make_room("", turns, SessionId("")))
    await eventually(lambda: begun(closed))
    assert not await idle_lanes.make_room("", turns, SessionId("")), "there is no other"
    (record,) = await stores.sessions.all_of(POOL)
    seen_before = Candidate(record, 0, is_spare=False, is_fair=True)
    assert not await idle_lanes._frees(seen_before, "")
    goes.set()
    assert await first
    assert closed == ["p.one"]
    await workers.aclose()


async def test_whom_to_choose_is_read_off_an_index(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """One record is read of the eight that are idle."""
    workers, idle_lanes = idle_lanes_of(stores, Closing)
    opened = [await stores.opened(str(number)) for number in range(8)]
    await age(stores, "3", 60)
    read: list[SessionId] = []
    records = SessionLists.records

    async def counted(lists: SessionLists, pool: PoolName, session_ids: Sequence[SessionId]) -> list[SessionRecord]:
        read.extend(session_ids)
        return await records(lists, pool, session_ids)

    monkeypatch.setattr(SessionLists, "records", counted)
    assert await idle_lanes.make_room("", {POOL: {WorkerId("w")}}, SessionId(""))
    assert read == [opened[3].session_id]
    await workers.aclose()


async def begun(closed: list[SessionId]) -> bool:
    return bool(closed)
