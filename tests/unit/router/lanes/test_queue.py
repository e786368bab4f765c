"""Calls that wait for a lane: in which order they get one, and what ends a wait otherwise."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Any

import grpc
import pytest
import structlog

from kakeya_router.access.callers import ANYBODY
from kakeya_router.lanes import waiter as waiter_module
from kakeya_router.lanes.admission_queue import AdmissionQueue
from kakeya_router.lanes.waiter import Waiter
from kakeya_router.lanes.wanted import Wanted
from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.keys import PoolKeys
from kakeya_router.store.session_record import PoolName
from kakeya_router.store.sessions.queue_store import Entry, Place, QueueStore
from kakeya_router.store.sessions.session_changes import UNLIMITED
from kakeya_shared.errors.tree import (
    Draining,
    InvalidField,
    NoCapacity,
    NoWorker,
    QueueFull,
    QueueTimedOut,
    StoreUnavailable,
)
from kakeya_shared.process.detached_tasks import DetachedTasks
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.redis_server import RedisServer
from tests.unit.router.admission_stores import fleet_on, stores_on
from tests.unit.router.fake_worker import LANE_BYTES, FakeWorker
from tests.unit.router.keyed import keyed_on
from tests.unit.router.lapses import Waits, expire
from tests.unit.router.stack import LONG_SECONDS, Client, Stack, answer, eventually, stack_on

QUEUE: dict[str, Any] = {"admission": "queue", "queue_seconds": 600}
TINY = PoolName("tiny")
KEYS = PoolKeys(TINY)


async def line(stack: Stack, pool: PoolName = TINY) -> list[str]:
    """Who stands in it, in the order of the sorted set."""
    members: list[str] = await stack.redis.zrange(PoolKeys(pool).queue, 0, -1)
    return members


async def stand(stack: Stack, number: int, pool: PoolName = TINY) -> None:
    async def is_so() -> bool:
        return len(await line(stack, pool)) == number

    await eventually(is_so)


async def waiting(stack: Stack, client: Client, **fields: Any) -> asyncio.Task[str]:
    """A call that has taken its place at the end of the line."""
    before = set(await line(stack))  # of whom some may just be leaving
    task = asyncio.create_task(client.session(**fields))

    async def is_new() -> bool:
        return bool(set(await line(stack)) - before)

    await eventually(is_new)
    return task


async def nothing(stack: Stack) -> bool:
    return not await stack.session_keys()


async def no_rooms() -> AsyncGenerator[str, None]:
    """A subscription that says nothing."""
    return
    yield


@pytest.fixture
async def patient(stack: Stack) -> Client:
    return await stack.router(**QUEUE)


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[QueueStore]:
    """A router that vanishes as soon as its waiters stand in the line."""
    connection = RedisConnection(redis_url)
    yield QueueStore(connection, lease_seconds=600.0, queue_length=100)
    await connection.aclose()


async def lapse(stack: Stack, waiter_id: str) -> None:
    """Has the lease of a place lapse, as where its router does not get to renew it."""
    await stack.redis.hset(KEYS.waiters, f"{waiter_id}|lease_until_ms", 1)


def place(waiter_id: str, tenant: str = "", **fields: Any) -> Place:
    return Place(waiter_id, tenant, "", "Tiny", fields.pop("fingerprint", ""), [], LANE_BYTES, **fields)


async def test_waiters_of_two_routers_get_in_as_they_came(stack: Stack, patient: Client) -> None:
    routers = (patient, await stack.router(**QUEUE))
    worker = await stack.worker(patient, num_lanes=1)
    held = await patient.session()

    async def come_and_go(client: Client) -> str:
        session_id = await client.session()
        await client.close(session_id)
        return session_id

    calls = []
    for number in range(30):
        calls.append(asyncio.create_task(come_and_go(routers[number % 2])))
        await stand(stack, number + 1)
    await patient.close(held)
    assert worker.opening == [held, *await asyncio.gather(*calls)]
    await eventually(lambda: nothing(stack))


async def test_who_comes_while_others_wait_lines_up_behind_them(stack: Stack, patient: Client) -> None:
    worker = await stack.worker(patient, num_lanes=1)
    held = await patient.session()
    first = await waiting(stack, patient)
    worker.flowing.clear()
    closing = asyncio.create_task(patient.close(held))
    await closing
    await stand(stack, 0)  # the first has the lane now, and the worker is slow to open it
    second = await waiting(stack, patient)
    third = await waiting(stack, patient)
    worker.flowing.set()
    await patient.close(await first)
    await patient.close(await second)
    await patient.close(await third)


async def test_several_lanes_that_come_free_at_once_are_all_taken(stack: Stack, patient: Client) -> None:
    await stack.worker(patient, num_lanes=4)
    held = [await patient.session() for _ in range(4)]
    calls = [await waiting(stack, patient) for _ in range(4)]
    await asyncio.gather(*map(patient.close, held))
    assert len(set(await asyncio.gather(*calls))) == 4


async def test_a_client_that_leaves_is_out_of_the_line(stack: Stack, patient: Client) -> None:
    await stack.worker(patient, num_lanes=1)
    held = await patient.session()
    call = patient.runtime.CreateSession(api.CreateSessionRequest())
    await stand(stack, 1)
    second = await waiting(stack, patient)
    call.cancel()
    await stand(stack, 1)
    await patient.close(held)
    await patient.close(await second)
    await eventually(lambda: nothing(stack))


async def test_a_deadline_is_the_clients(stack: Stack, patient: Client) -> None:
    await stack.worker(patient, num_lanes=1)
    held = await patient.session()
    stood = False
    for seconds in (0.3, 3, 30):  # until one is long enough for it to take its place
        call = asyncio.ensure_future(patient.runtime.CreateSession(api.CreateSessionRequest(), timeout=seconds))
        while not stood and not call.done():
            stood = len(await line(stack)) == 1
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call
        assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        if stood:
            break
    assert stood
    await stand(stack, 0)
    await patient.close(held)


async def test_a_vanished_routers_waiters_hold_the_line_up_until_their_lease_lapses(
    stack: Stack, patient: Client, store: QueueStore
) -> None:
    await stack.worker(patient, num_lanes=1)
    held = await patient.session()
    assert (await store.enter(TINY, place("ghost"), UNLIMITED)).outcome == "waiting"
    call = await waiting(stack, patient)
    await patient.close(held)
    assert len(await line(stack)) == 2  # it is the ghost's turn
    assert not call.done()
    await lapse(stack, "ghost")
    assert await call
    assert await line(stack) == []


async def test_no_turn_is_missed_when_the_subscription_is_cut(stack: Stack, patient: Client) -> None:
    async def num_subscribers() -> int:
        return int((await stack.redis.pubsub_numsub("kakeya:room"))[0][1])

    await stack.worker(patient, num_lanes=1)
    held = await patient.session()
    for _ in range(3):
        await eventually(num_subscribers)
        call = await waiting(stack, patient)
        await stack.redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        await patient.close(held)
        held = await call
    await eventually(num_subscribers)


async def test_a_worker_that_joins_takes_the_first_in_line(stack: Stack, patient: Client) -> None:
    await stack.worker(patient, num_lanes=1)
    await patient.session()
    call = await waiting(stack, patient)
    await stack.worker(patient, "worker-b", num_lanes=1)
    assert (await patient.info(await call)).worker == "worker-b"


async def test_the_queue_has_an_end(stack: Stack) -> None:
    client = await stack.router(**QUEUE, queue_length=2)
    await stack.worker(client, num_lanes=1)
    held = await client.session()
    calls = [await waiting(stack, client) for _ in range(2)]
    with pytest.raises(QueueFull) as raised:
        await client.create()
    assert 1 <= (raised.value.retry_after_seconds or 0) <= 2
    for call in calls:
        await client.close(held)
        held = await call


async def test_lapsed_waiters_do_not_fill_the_queue(stack: Stack, store: QueueStore) -> None:
    client = await stack.router(**QUEUE, queue_length=1)
    await stack.worker(client, num_lanes=1)
    held = await client.session()
    await store.enter(TINY, place("ghost"), UNLIMITED)
    with pytest.raises(QueueFull):
        await client.create()
    await lapse(stack, "ghost")
    call = asyncio.create_task(_let_in(client))

    async def alone() -> bool:
        members = await line(stack)
        return len(members) == 1 and "ghost" not in members[0]

    await eventually(alone)
    await client.close(held)
    await call


async def _let_in(client: Client) -> str:
    while True:
        try:
            return await client.session()
        except QueueFull:
            await asyncio.sleep(0.1)


async def test_in_a_full_queue_the_longest_gives_way_to_who_has_fewer(redis_url: str) -> None:
    async with keyed_on(redis_url, **QUEUE, queue_length=3) as keyed:
        greedy, modest = await keyed.tenant("greedy"), await keyed.tenant("modest")
        await keyed.worker(num_lanes=2)
        held = [await greedy.session() for _ in range(2)]
        calls = [await waiting(keyed.stack, greedy) for _ in range(3)]
        fourth = asyncio.create_task(greedy.session())
        with pytest.raises(QueueFull):
            await fourth
        modest_call = asyncio.create_task(modest.session())
        with pytest.raises(QueueFull):
            await calls[2]
        second = asyncio.create_task(modest.session())
        with pytest.raises(QueueFull):  # it would have as many as the other
            await second
        await greedy.close(held[0])
        await modest.close(await modest_call)  # it holds less, so that it comes before the greedy
        for call in calls[:2]:
            await greedy.close(await call)


async def test_a_wait_ends_in_time(stack: Stack, waits: Waits) -> None:
    client = await stack.router(admission="queue", queue_seconds=0.2)
    worker = await stack.worker(client, num_lanes=1)
    await client.session()
    with pytest.raises(QueueTimedOut, match=r"within 0\.2 s") as raised:
        await client.create()
    assert 1 <= (raised.value.retry_after_seconds or 0) <= 2
    await stand(stack, 0)
    call = await waiting(stack, await stack.router(**QUEUE))
    worker.stop_beating()
    await answer(client.registry.Leave(worker.leave_request()))
    waits.end()
    with pytest.raises(NoWorker, match="any more"):
        await call


async def test_zero_seconds_are_for_ever(stack: Stack, store: QueueStore) -> None:
    client = await stack.router(admission="queue", queue_seconds=0)
    await stack.worker(client, num_lanes=1)
    held = await client.session()
    call = await waiting(stack, client)
    (member,) = await line(stack)
    lease = f"{member.split('|')[2]}|lease_until_ms"
    leased_until = int(await stack.redis.hget(KEYS.waiters, lease))

    async def renewed_twice() -> bool:
        return int(await stack.redis.hget(KEYS.waiters, lease)) > leased_until + 1500

    await eventually(renewed_twice)
    await client.close(held)
    await call


async def test_a_router_that_shuts_down_ends_its_waits(stack: Stack, patient: Client) -> None:
    await stack.worker(patient, num_lanes=1)
    await patient.session()
    call = await waiting(stack, patient)
    await stack.stop_routers()
    with pytest.raises(Draining) as raised:
        await call
    assert 0 < (raised.value.retry_after_seconds or 0) < 0.5  # another router serves at once
    assert await line(stack) == []


async def test_equal_requests_that_wait_are_all_answered_with_the_first_turn(stack: Stack, patient: Client) -> None:
    routers = (patient, await stack.router(**QUEUE))
    await stack.worker(patient, num_lanes=1)
    held = await patient.session()
    calls = [await waiting(stack, client, request_id="once") for client in routers * 2]
    await patient.close(held)
    (session_id,) = set(await asyncio.gather(*calls))
    assert await line(stack) == []
    await patient.close(session_id)


async def test_what_waits_for_a_worker_that_fits_is_not_held_up_by_what_fits_others(
    stack: Stack, patient: Client
) -> None:
    await stack.worker(patient, "worker-a", num_lanes=1, fingerprint="aa")
    await stack.worker(patient, "worker-b", num_lanes=1, fingerprint="bb")
    on_a, on_b = await patient.session(fingerprint="aa"), await patient.session(fingerprint="bb")
    wants_a = await waiting(stack, patient, fingerprint="aa")
    wants_any = await waiting(stack, patient)
    await patient.close(on_b)
    assert (await patient.info(await wants_any)).worker == "worker-b"
    await patient.close(on_a)
    assert (await patient.info(await wants_a)).worker == "worker-a"


async def test_a_worker_that_somebody_else_is_first_at_is_passed_by(
    stack: Stack, patient: Client, store: QueueStore
) -> None:
    await stack.worker(patient, "worker-a", num_lanes=2, fingerprint="aa")
    held = await patient.session()
    await store.enter(TINY, place("wants-b", fingerprint="bb"), UNLIMITED)
    await stack.redis.hset(KEYS.waiters, "wants-b|lease_until_ms", 10**14)
    await stack.worker(patient, "worker-b", num_lanes=8, fingerprint="bb")
    await patient.session()  # worker-b has more room, and is not for who comes now
    call = await waiting(stack, patient)
    await patient.close(held)
    assert (await patient.info(await call)).worker == "worker-a"


async def test_what_only_a_full_worker_can_hold_waits_for_it(stack: Stack, patient: Client) -> None:
    small = await stack.worker(patient, "worker-a", num_lanes=8)
    await stack.worker(patient, "worker-b", num_lanes=1, window=100)
    held = await patient.session(window=50)
    call = await waiting(stack, patient, window=50)
    await patient.close(await patient.session())  # worker-a has room, and the waiter cannot use it
    await patient.close(held)
    assert (await patient.info(await call)).worker == "worker-b"
    assert small.calls["OpenSession"] == 3


async def test_a_worker_that_refuses_a_waiter_is_not_asked_again(stack: Stack, waits: Waits) -> None:
    client = await stack.router(**QUEUE)
    large = await stack.worker(client, "worker-a", num_lanes=1, window=100)
    small = await stack.worker(client, "worker-b", num_lanes=1)
    held = [await client.session(), await client.session()]
    call = await waiting(stack, client, window=50)
    on_small = next(session_id for session_id in held if session_id in small.lanes)
    await client.close(on_small)
    await eventually(lambda: _calls(small, "OpenSession", 2))
    await stand(stack, 1)
    large.stop_beating()
    await answer(client.registry.Leave(large.leave_request()))
    waits.end()
    with pytest.raises(InvalidField):  # now it is all of them
        await call
    assert small.calls["OpenSession"] == 2


async def test_when_all_workers_refuse_a_waiter_it_is_told_so(stack: Stack, patient: Client) -> None:
    worker = await stack.worker(patient, num_lanes=1)
    held = await patient.session()
    call = await waiting(stack, patient, window=500)
    await patient.close(held)
    with pytest.raises(InvalidField):
        await call
    assert worker.calls["OpenSession"] == 2
    await eventually(lambda: nothing(stack))


async def _calls(worker: FakeWorker, method: str, number: int) -> bool:
    return worker.calls[method] >= number


async def test_a_worker_that_cannot_take_the_first_now_costs_nobody_the_place(stack: Stack, patient: Client) -> None:
    worker = await stack.worker(patient, num_lanes=1)
    held = await patient.session()
    first, second = await waiting(stack, patient), await waiting(stack, patient)
    worker.failures["OpenSession"] = [NoCapacity("an orphan is in the way"), RuntimeError("a bug of this worker's")]
    await patient.close(held)
    await eventually(lambda: _calls(worker, "OpenSession", 3))
    held = await first
    assert not second.done()
    await patient.close(held)
    assert await second == worker.opening[-1]


async def test_who_lost_its_place_by_accident_has_it_again(stack: Stack, patient: Client, store: QueueStore) -> None:
    await stack.worker(patient, num_lanes=1)
    held = await patient.session()
    first, second = await waiting(stack, patient), await waiting(stack, patient)
    before = await line(stack)
    for member in before:
        await store.leave(TINY, member.split("|")[2])
    await stand(stack, 2)
    assert await line(stack) == before
    await patient.close(held)
    await patient.close(await first)
    await second


async def test_a_model_of_two_pools_is_waited_for_in_both(stack: Stack, patient: Client) -> None:
    await stack.worker(patient, "worker-a", num_lanes=1)
    await stack.worker(patient, "worker-b", num_lanes=1, pool="other")
    held = [await patient.session(), await patient.session()]
    first, second = asyncio.create_task(patient.session()), asyncio.create_task(patient.session())
    await stand(stack, 2)
    await stand(stack, 2, PoolName("other"))
    for session_id in held:
        await patient.close(session_id)
    for call in (first, second):
        await patient.close(await call)
    await eventually(lambda: nothing(stack))


async def test_waiters_outlive_an_outage_of_redis(own_redis: RedisServer) -> None:
    async with stack_on(own_redis.url) as stack:
        client = await stack.router(**QUEUE)
        await stack.worker(client, num_lanes=1)
        held = await client.session()
        calls = [await waiting(stack, client) for _ in range(3)]
        leaving = client.runtime.CreateSession(api.CreateSessionRequest())
        await stand(stack, 4)
        own_redis.stop()
        leaving.cancel()  # it cannot say so, and its lease lapses
        await asyncio.sleep(1.5)  # a tick without Redis
        own_redis.start()
        await stand(stack, 4)
        for call in calls:
            await eventually(partial(_closed, client, held))
            held = await call
        await client.close(held)
        await eventually(lambda: nothing(stack))


async def _closed(client: Client, session_id: str) -> bool:
    try:
        await client.close(session_id)
    except Exception:
        return False
    return True


async def test_a_pass_that_stumbles_is_followed_by_the_next(stack: Stack, patient: Client) -> None:
    await stack.worker(patient, num_lanes=1)
    held = await patient.session()
    call = await waiting(stack, patient)
    kept = await stack.redis.hgetall(KEYS.waiters)
    with structlog.testing.capture_logs() as lines:
        await stack.redis.set(KEYS.waiters, "not a hash")  # at once: a tick that finds no key has the waiter queue anew
        while not any(line["event"] == "the queue's tick has failed and goes on" for line in lines):
            await asyncio.sleep(0.05)
    async with stack.redis.pipeline(transaction=True) as together:
        await together.delete(KEYS.waiters).hset(KEYS.waiters, mapping=kept).execute()
    (lease,) = (name for name in kept if name.endswith("|lease_until_ms"))

    async def renewed() -> bool:
        return int(await stack.redis.hget(KEYS.waiters, lease)) > int(kept[lease])

    await eventually(renewed)
    await patient.close(held)
    await call


async def test_a_request_id_is_its_tenants_own(redis_url: str) -> None:
    async with keyed_on(redis_url, **QUEUE) as keyed:
        one, other = await keyed.tenant("one"), await keyed.tenant("other")
        await keyed.worker(num_lanes=4)
        assert await one.session(request_id="once") != await other.session(request_id="once")
        assert await one.session(request_id="once") == await one.session(request_id="once")


async def test_a_crowd_that_comes_and_goes_leaves_nothing(stack: Stack) -> None:
    patient, other = [await stack.router(**QUEUE) for _ in range(2)]
    routers = (patient, other)
    workers = [await stack.worker(patient, f"worker-{name}", num_lanes=4) for name in "ab"]
    draw = random.Random(11)

    async def few() -> bool:
        return sum(":session:" in key for key in await stack.session_keys()) <= 3

    async def come(client: Client, fate: float) -> str:
        call = client.runtime.CreateSession(api.CreateSessionRequest())
        if fate < 0.3:
            await asyncio.sleep(fate)
            call.cancel()
        try:
            session_id = (await call).session_id
        except asyncio.CancelledError:
            return "left"
        if fate > 0.99:
            return str(session_id)  # and forgets to close it
        await client.close(session_id)
        return "closed"

    fates = await asyncio.gather(*(come(routers[number % 2], draw.random()) for number in range(200)))
    forgotten = [fate for fate in fates if fate not in ("left", "closed")]
    assert fates.count("left") > 20
    assert 0 < len(forgotten) < 8  # or nobody else could have got in
    for session_id in forgotten:
        await patient.close(session_id)
    # Whoever leaves while the answer is on its way has a session that nobody knows of: its time to live ends it.
    await eventually(few)
    for session_id in await stack.redis.zrange(KEYS.expiry, 0, -1):
        await expire(stack, session_id)
    await eventually(lambda: nothing(stack))
    assert not any(worker.lanes for worker in workers)
    ledger = (await patient.workers()).values()
    assert [(worker.reserved_bytes, worker.num_sessions) for worker in ledger] == [(0, 0), (0, 0)]


async def test_a_subscription_that_fails_in_an_unforeseen_way_comes_back(
    stack: Stack, patient: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def num_subscribers() -> int:
        return int((await stack.redis.pubsub_numsub("kakeya:room"))[0][1])

    failed = asyncio.Event()

    async def broken(url: str, timeout_seconds: float, channel: str) -> AsyncIterator[str]:
        monkeypatch.undo()
        failed.set()
        raise RuntimeError("a bug")
        yield ""

    await eventually(num_subscribers)
    monkeypatch.setattr("kakeya_router.wiring.messages", broken)
    await stack.redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    await failed.wait()
    await eventually(num_subscribers)


async def test_a_question_that_redis_does_not_answer_is_asked_again(
    stack: Stack, patient: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def unanswered(*_: object) -> None:
        asked.set()
        raise StoreUnavailable("Redis does not answer")

    await stack.worker(patient, num_lanes=1)
    held = await patient.session()
    monkeypatch.setattr(QueueStore, "first_waiters", unanswered)
    call = await waiting(stack, patient)
    await asked.wait()
    await patient.close(held)
    monkeypatch.undo()
    await call


async def test_a_router_that_shuts_down_lets_nobody_wait(redis_url: str) -> None:
    tasks = DetachedTasks()
    async with stores_on(redis_url) as stores:
        queue = AdmissionQueue(stores.queue, fleet_on(stores.redis, tasks), tasks, rooms=no_rooms, idle_lanes=None)
        queue.close()
        with pytest.raises(Draining):
            async with queue.waiting(Waiter(Wanted(ANYBODY, "m", {PoolName("p")}), 100)):
                raise AssertionError("it waits")
        assert await stores.waiting() == []


async def test_one_request_that_waits_for_several_pools_makes_one_session(stack: Stack, patient: Client) -> None:
    routers = (patient, await stack.router(**QUEUE))
    workers = [
        await stack.worker(patient, "worker-a", num_lanes=1),
        await stack.worker(patient, "worker-b", num_lanes=1, pool="other"),
    ]
    for step in range(5):
        held = [await patient.session(), await patient.session()]
        calls = [asyncio.create_task(client.session(request_id=f"once-{step}")) for client in routers]
        await stand(stack, 2)
        await stand(stack, 2, PoolName("other"))
        await asyncio.gather(*map(patient.close, held))
        (session_id,) = set(await asyncio.gather(*calls))
        await eventually(partial(_only, workers, session_id))
        await patient.close(session_id)
    await eventually(lambda: nothing(stack))


async def _only(workers: list[FakeWorker], session_id: str) -> bool:
    return [lane for worker in workers for lane in worker.lanes] == [session_id]


async def test_what_waits_for_a_model_holds_up_nobody_who_wants_another(stack: Stack, patient: Client) -> None:
    worker = await stack.worker(patient, num_lanes=1)
    await patient.session()
    call = await waiting(stack, patient)
    worker.stop_beating()
    await answer(patient.registry.Leave(worker.leave_request()))
    await stack.worker(patient, "worker-b", num_lanes=1, model="Other")
    await patient.session(model="Other")
    assert not call.done()
    call.cancel()


async def test_in_an_outage_of_redis_no_waiters_lease_ages(own_redis: RedisServer) -> None:
    async with stack_on(own_redis.url) as stack:
        settings = {**QUEUE, "queue_length": 1}
        client, other = await stack.router(**settings), await stack.router(**settings)
        await stack.worker(client, num_lanes=1)
        held = await client.session()
        call = await waiting(stack, client)
        before = await line(stack)
        (lease,) = (name for name in await stack.redis.hkeys(KEYS.waiters) if name.endswith("|lease_until_ms"))
        await stack.redis.hset(KEYS.waiters, lease, 1)  # as if the outage had been longer than the lease
        own_redis.stop()
        await asyncio.sleep(1.5)  # both have noticed
        own_redis.start()
        await eventually(partial(_refused, other))
        assert await line(stack) == before
        await eventually(partial(_closed, client, held))
        await call


async def _refused(client: Client) -> bool:
    """Once its router has Redis and the worker's connection again."""
    try:
        await client.session()
    except QueueFull:
        return True
    except NoWorker:
        return False
    except StoreUnavailable:
        return False
    raise AssertionError("it came in before who waited")


async def test_what_a_waiter_has_begun_to_enter_it_leaves_again(redis_url: str) -> None:
    class Slow(QueueStore):
        async def enter(self, *args: Any, returning: bool = False, **fields: Any) -> Entry:
            entry = await super().enter(*args, returning=returning, **fields)
            if returning:
                entered.set()
                await answered.wait()
            return entry

    async def return_and_leave() -> None:
        async with queue.waiting(waiter):
            await queue.step_out(waiter)
            await queue.enter(waiter, [PoolName("p")])

    entered, answered, tasks = asyncio.Event(), asyncio.Event(), DetachedTasks()
    async with stores_on(redis_url) as stores:
        store = Slow(stores.redis, lease_seconds=60, queue_length=10)
        queue = AdmissionQueue(store, fleet_on(stores.redis, tasks), tasks, rooms=no_rooms, idle_lanes=None)
        waiter = Waiter(Wanted(ANYBODY, "m", {PoolName("p")}), 100)
        call = asyncio.create_task(return_and_leave())
        await entered.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        answered.set()
        await tasks.drain(LONG_SECONDS)
        assert await stores.waiting() == []


async def test_who_finds_one_of_two_lines_full_waits_in_the_other(stack: Stack) -> None:
    client = await stack.router(**QUEUE, queue_length=1)
    await stack.worker(client, "worker-a", num_lanes=1)
    await client.session()
    first = await waiting(stack, client)
    await stack.worker(client, "worker-b", num_lanes=1, pool="other")
    held = await client.session()
    second = asyncio.create_task(client.session())
    await stand(stack, 1, PoolName("other"))
    with pytest.raises(QueueFull):  # now both are
        await client.session()
    await client.close(held)
    assert (await client.info(await second)).worker == "worker-b"
    first.cancel()


async def test_a_worker_that_is_just_closing_a_lane_is_tried_again_soon(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the ledger it has room before it is asked to close a parked session's lane."""
    monkeypatch.setattr(waiter_module, "_PAUSE_SECONDS", 3600.0)
    client = await stack.router(**QUEUE)
    worker = await stack.worker(client, num_lanes=1)
    held = await client.session()
    waits = [await waiting(stack, client) for _ in range(2)]
    worker.failures["OpenSession"] = [NoCapacity("all 1 lanes are in use") for _ in range(3)]
    await client.close(held)
    first = await waits[0]
    assert worker.calls["OpenSession"] == 1 + 4
    await client.close(first)
    await waits[1]
