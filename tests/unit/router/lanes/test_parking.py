"""A session gives its lane to others, by request or for room, and has one again with its next call."""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from kakeya_router.lanes import parking as parking_module
from kakeya_router.lanes.parking import Parking, Reason
from kakeya_router.snapshots.snapshotting import Snapshotting
from kakeya_router.store.outcomes import ParkSession
from kakeya_router.store.session_record import PoolName, SessionRecord, WorkerId
from kakeya_router.store.sessions.queue_store import FirstWaiter, QueueStore
from kakeya_router.store.sessions.session_store import Answer
from kakeya_shared.errors.tree import (
    Internal,
    InvariantViolated,
    NoCapacity,
    OperationRunning,
    QueueTimedOut,
    SessionNotFound,
    SnapshotStoreUnavailable,
    StoreUnavailable,
    WorkerLost,
)
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.fake_worker import BYTES_PER_TOKEN, LANE_BYTES, FakeWorker, SnapshotFiles
from tests.unit.router.keyed import keyed_on
from tests.unit.router.lanes.test_queue import stand, waiting
from tests.unit.router.lapses import Waits
from tests.unit.router.stack import FORGETFUL, Client, Stack, answer, begin_ahead, eventually, has_snapshot, leave

SESSION = "kakeya:{{tiny}}:session:{}"
OPERATION = "kakeya:{{tiny}}:op:{}"
IDLE = "kakeya:{tiny}:idle"
EXPIRY = "kakeya:{tiny}:expiry"
EVICT_IDLE: dict[str, Any] = {"admission": "evict-idle", "close_idle_after_seconds": 0.0, "queue_seconds": 600}
NO_STORE = SnapshotStoreUnavailable("the disk is full")


@pytest.fixture
def files() -> SnapshotFiles:
    return SnapshotFiles()


@pytest.fixture
async def storing(stack: Stack, client: Client, files: SnapshotFiles) -> FakeWorker:
    """A worker with a snapshot store."""
    return await stack.worker(client, files=files)


def expected(start: int, end: int) -> list[int]:
    """What a fake worker generates at these history indices."""
    return [100 + index % 800 for index in range(start, end)]


def generated(responses: list[api.GenerateResponse]) -> list[int]:
    return [response.token_id for response in responses if response.HasField("token_id")]


async def state(client: Client, session_id: str) -> str:
    return api.SessionState.Name((await client.info(session_id)).state).removeprefix("SESSION_STATE_")


async def is_parked(client: Client, session_id: str) -> bool:
    return await state(client, session_id) == "PARKED"


async def ledger(client: Client, worker_id: str = "worker-a") -> tuple[int, int, int]:
    worker = (await client.workers())[worker_id]
    return worker.reserved_bytes, worker.kv_live_bytes, worker.num_sessions


async def turns(client: Client, session_id: str, number: int = 1) -> int:
    """Some turns of 3 and 2 tokens, too many for a router that is FORGETFUL; returns the history length."""
    for _ in range(number):
        await client.append(session_id, [1, 2])
        await client.append(session_id, [3])
        last = (await client.generate(session_id, 2))[-1]
    return int(last.done.history_length)


async def lean_on_the_store(stack: Stack, client: Client, session_id: str) -> int:
    """Turns that its journal is not enough for; returns the history length."""
    for _ in range(3):
        length = await turns(client, session_id)
        await eventually(lambda: has_snapshot(stack, session_id, length))  # noqa: B023  # awaited at once
    return length


# By request


async def test_a_parked_session_frees_its_lane_and_goes_on_with_the_next_call(
    stack: Stack, client: Client, storing: FakeWorker
) -> None:
    session_id = await client.session()
    await client.append(session_id, range(60))
    parked = await client.park(session_id)
    assert (parked.history_length, parked.freed_bytes) == (60, LANE_BYTES)
    assert session_id not in storing.lanes
    assert await ledger(client) == (0, 0, 0)
    info = await client.info(session_id)
    assert (info.history_length, info.kv_live_bytes, info.reserved_bytes, info.worker) == (60, 0, 0, "")
    assert await is_parked(client, session_id)
    num_prefills = storing.calls["Append"]
    assert generated(await client.generate(session_id, 5)) == expected(60, 65)
    assert storing.calls["Append"] == num_prefills  # the snapshot had all of it
    assert (await client.info(session_id)).epoch > 1
    assert await ledger(client) == (LANE_BYTES, 20 * BYTES_PER_TOKEN, 1)


async def test_without_a_store_it_is_prefilled_from_the_journal(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, range(60))
    assert (await client.park(session_id)).freed_bytes == LANE_BYTES
    assert (await client.append(session_id, [7])).history_length == 61
    assert worker.lanes[session_id].token_ids == [*range(60), 7]


async def test_parking_twice_and_after_the_worker_is_gone(stack: Stack, client: Client, storing: FakeWorker) -> None:
    first, other = await client.session(), await client.session()
    for session_id in (first, other):
        await client.append(session_id, range(60))
    await client.park(first)
    kept_until = await stack.redis.zscore(EXPIRY, first)
    parked = await client.park(first)
    assert (parked.history_length, parked.freed_bytes) == (60, 0)
    assert await stack.redis.zscore(EXPIRY, first) == kept_until
    idle_since = await stack.redis.hget(SESSION.format(other), "idle_since_ms")
    await answer(client.registry.Leave(storing.leave_request()))
    parked = await client.park(other)
    assert (parked.history_length, parked.freed_bytes) == (60, 0)
    record = await stack.redis.hgetall(SESSION.format(other))
    assert record["state"] == "parked"
    assert await is_parked(client, other)
    assert int(record["idle_since_ms"]) >= int(idle_since)


async def test_what_is_too_long_for_the_journal_needs_a_store(stack: Stack) -> None:
    client = await stack.router(**FORGETFUL)
    worker = await stack.worker(client)
    session_id = await client.session()
    await turns(client, session_id, 2)
    with pytest.raises(SnapshotStoreUnavailable):
        await client.park(session_id)
    assert await state(client, session_id) == "OPEN"
    assert await ledger(client) == (LANE_BYTES, 10 * BYTES_PER_TOKEN, 1)
    assert await turns(client, session_id) == 15
    assert worker.calls["OpenSession"] == 1


@pytest.mark.parametrize("failure", [NO_STORE, Internal("no idea")])
async def test_a_store_that_fails(stack: Stack, files: SnapshotFiles, failure: Exception) -> None:
    client = await stack.router()
    worker = await stack.worker(client, files=files)
    worker.failures["WriteSnapshot"] = [failure] * 100
    session_id = await client.session()
    await client.append(session_id, [1, 2, 3])
    assert (await client.park(session_id)).freed_bytes == LANE_BYTES  # the journal has all of it
    assert not files.contents
    worker.failures["WriteSnapshot"].clear()
    session_id = await client.session()
    assert await lean_on_the_store(stack, client, session_id) == 15
    await client.append(session_id, [1])
    worker.failures["WriteSnapshot"] = [failure] * 100
    with pytest.raises(SnapshotStoreUnavailable):
        await client.park(session_id)
    assert await state(client, session_id) == "OPEN"
    worker.failures["WriteSnapshot"].clear()
    assert await eventually(lambda: parked_at_last(client, session_id))
    assert generated(await client.generate(session_id, 2)) == expected(16, 18)


async def parked_at_last(client: Client, session_id: str) -> bool:
    try:
        return (await client.park(session_id)).freed_bytes > 0
    except SnapshotStoreUnavailable:
        return False


async def test_a_store_that_does_not_work_is_left_alone_for_a_while(stack: Stack, files: SnapshotFiles) -> None:
    client = await stack.router(snapshot_turns=4)
    worker = await stack.worker(client, files=files)
    sessions = [await client.session() for _ in range(4)]
    for session_id in sessions:
        await client.append(session_id, [1])
    worker.failures["WriteSnapshot"] = [NO_STORE]
    for session_id in sessions:
        assert (await client.park(session_id)).freed_bytes == LANE_BYTES
    assert worker.calls["WriteSnapshot"] < 4


async def test_a_session_in_use_is_not_parked(client: Client, storing: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    storing.flowing.clear()
    appending = asyncio.create_task(client.append(session_id, [2]))
    await eventually(lambda: called(storing, "Append", 2))
    with pytest.raises(OperationRunning):
        await client.park(session_id)
    storing.flowing.set()
    assert (await appending).history_length == 2
    assert session_id in storing.lanes


async def called(worker: FakeWorker, method: str, times: int) -> bool:
    return worker.calls[method] >= times


async def test_a_call_that_comes_while_a_snapshot_is_written_wins(stack: Stack, storing: FakeWorker) -> None:
    """Nobody is told OPERATION_RUNNING for a session that only the runtime is busy with."""
    client = await stack.router(snapshot_turns=4)  # none is written but for parking
    session_id = await client.session()
    await client.append(session_id, range(30))
    storing.writing.clear()
    parking = asyncio.create_task(client.park(session_id))
    await eventually(lambda: called(storing, "WriteSnapshot", 1))
    storing.pause_in = 1
    call = client.generating(session_id, 50)
    await call.read()
    storing.writing.set()
    with pytest.raises(OperationRunning):
        await parking
    storing.flowing.set()
    while (response := await call.read()) is not grpc.aio.EOF:
        last = response
    assert last.done.history_length == 80
    storing.writing.clear()
    parking = asyncio.create_task(client.park(session_id))
    await eventually(lambda: called(storing, "WriteSnapshot", 2))
    assert (await client.append(session_id, [5])).history_length == 81  # and is over before it is written
    storing.writing.set()
    assert (await parking).history_length == 81
    assert (await client.append(session_id, [6])).history_length == 82
    assert storing.lanes[session_id].token_ids[-2:] == [5, 6]


async def leave_parking(
    client: Client,
    worker: FakeWorker,
    session_id: str,
    parking: "asyncio.Task[api.ParkSessionResponse]",
    *,
    closes: bool,
) -> None:
    """The session ends, or moves and grows by a token, before its snapshot is written."""
    length = len(worker.lanes[session_id].token_ids)
    if closes:
        await client.close(session_id)
    else:
        del worker.lanes[session_id]
        await client.append(session_id, [4])
    worker.writing.set()
    if closes:
        with pytest.raises(SessionNotFound):
            await parking
    else:
        assert (await parking).history_length == length + 1
        assert not worker.lanes


async def begin_writing(client: Client, worker: FakeWorker) -> str:
    """A session of three tokens whose turn has just ended; its snapshot is there once the worker's `writing` is set."""
    session_id = await client.session()
    worker.writing.clear()
    await client.append(session_id, [1])
    await client.generate(session_id, 2)
    await eventually(lambda: called(worker, "WriteSnapshot", 1))
    return session_id


async def waits_for(worker: FakeWorker, parking: "asyncio.Task[api.ParkSessionResponse]") -> None:
    """It would have begun to write by then."""
    await asyncio.wait([parking], timeout=0.3)
    assert (parking.done(), worker.calls["WriteSnapshot"]) == (False, 1)


async def test_what_is_being_written_is_not_written_twice(client: Client, storing: FakeWorker) -> None:
    session_id = await begin_writing(client, storing)
    parking = asyncio.create_task(client.park(session_id))
    await waits_for(storing, parking)
    storing.writing.set()
    assert (await parking).history_length == 3
    assert storing.calls["WriteSnapshot"] == 1
    assert not storing.lanes
    assert (await client.append(session_id, [4])).history_length == 4


async def test_what_came_since_is_written_then(client: Client, storing: FakeWorker, files: SnapshotFiles) -> None:
    session_id = await begin_writing(client, storing)
    await client.append(session_id, [4])
    parking = asyncio.create_task(client.park(session_id))
    await waits_for(storing, parking)
    storing.writing.set()
    assert (await parking).history_length == 4
    assert storing.calls["WriteSnapshot"] == 2
    assert [name.rpartition("-")[2] for name in sorted(files.contents)] == ["3.safetensors", "4.safetensors"]


@pytest.mark.parametrize("closes", [True, False])
async def test_a_session_that_moves_or_ends_while_parking_waits_for_its_snapshot(
    client: Client, storing: FakeWorker, *, closes: bool
) -> None:
    session_id = await begin_writing(client, storing)
    parking = asyncio.create_task(client.park(session_id))
    await waits_for(storing, parking)
    await leave_parking(client, storing, session_id, parking, closes=closes)


async def test_who_leaves_while_its_session_is_parked_has_it_parked(client: Client, storing: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    storing.writing.clear()
    call = client.runtime.ParkSession(api.ParkSessionRequest(session_id=session_id))
    await eventually(lambda: called(storing, "WriteSnapshot", 1))
    await leave(call, "ParkSession")
    storing.writing.set()
    await eventually(lambda: is_parked(client, session_id))


async def test_a_lane_that_its_worker_does_not_close_is_an_orphan(client: Client, storing: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    storing.failures["CloseSession"] = [Internal("not now")]
    assert (await client.park(session_id)).freed_bytes == LANE_BYTES
    assert session_id in storing.lanes
    assert [orphan.session_id for orphan in (await client.beat(storing)).orphans] == [session_id]
    assert (await client.append(session_id, [2])).history_length == 2


async def test_who_has_no_such_session_is_told_so(redis_url: str) -> None:
    async with keyed_on(redis_url) as keyed:
        ours, theirs = await keyed.tenant("ours"), await keyed.tenant("theirs")
        worker = await keyed.worker()
        session_id = await ours.session()
        for client, id_ in ((theirs, session_id), (ours, "tiny.nobody"), (ours, "nonsense")):
            with pytest.raises(SessionNotFound):
                await client.park(id_)
        assert session_id in worker.lanes
        await ours.close(session_id)
        with pytest.raises(SessionNotFound):
            await ours.park(session_id)


async def test_what_cannot_be_had_any_more_cannot_be_parked(stack: Stack) -> None:
    client = await stack.router(**FORGETFUL)
    worker = await stack.worker(client)
    failed, lost = await client.session(), await client.session()
    for session_id in (failed, lost):
        await turns(client, session_id)
    worker.failures["Append"] = [InvariantViolated("inv1", metadata={"invariant": "inv1"})]
    with pytest.raises(InvariantViolated):
        await client.append(failed, [1])
    with pytest.raises(InvariantViolated):
        await client.park(failed)
    await answer(client.registry.Leave(worker.leave_request()))
    with pytest.raises(WorkerLost):
        await client.park(lost)


async def test_what_a_vanished_router_left_behind_is_ended_first(
    stack: Stack, client: Client, storing: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking_module, "_WRITE_SECONDS", 0.1)  # no snapshot is written before it has ended
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    storing.lanes[session_id].token_ids += [3, 4]
    record = {"claim": "theirs", "op_id": "theirs", "kind": "generate", "start_length": "2", "lease_until_ms": "1"}
    await stack.redis.hset(OPERATION.format(session_id), mapping=record)
    parked = await eventually(lambda: parked_unless_busy(client, session_id))
    assert parked.history_length == 4
    assert (await client.append(session_id, [5])).history_length == 5
    assert storing.lanes[session_id].token_ids == [1, 2, 3, 4, 5]


async def parked_unless_busy(client: Client, session_id: str) -> api.ParkSessionResponse | None:
    try:
        return await client.park(session_id)
    except OperationRunning:
        return None


@pytest.mark.parametrize("closes", [True, False])
async def test_a_session_that_moves_or_ends_before_it_is_parked(
    client: Client, storing: FakeWorker, *, closes: bool
) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    storing.writing.clear()
    parking = asyncio.create_task(client.park(session_id))
    await eventually(lambda: called(storing, "WriteSnapshot", 1))
    await leave_parking(client, storing, session_id, parking, closes=closes)


async def test_a_session_that_is_closed_between_two_looks(
    client: Client, storing: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await client.session()

    async def changed(self: Parking, record: SessionRecord, reason: Reason, **_: object) -> Answer[ParkSession]:
        await client.close(record.session_id)
        return Answer(ParkSession.CHANGED, record)

    monkeypatch.setattr(Parking, "park", changed)
    with pytest.raises(SessionNotFound):
        await client.park(session_id)


async def test_parking_does_not_disturb_what_makes_a_generate_idempotent(client: Client, storing: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    for _ in range(3):
        responses = await client.generate(session_id, 5, op_id="mine", expected_history_length=1)
        assert generated(responses) == expected(1, 6)
        await client.park(session_id)


async def test_while_redis_is_away_nothing_is_parked(
    client: Client, storing: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> bool:
        raise StoreUnavailable("away")

    session_id = await client.session()
    await client.append(session_id, [1])
    monkeypatch.setattr(Snapshotting, "write_now", away)
    with pytest.raises(StoreUnavailable):
        await client.park(session_id)
    assert await state(client, session_id) == "OPEN"


async def test_a_worker_that_has_just_joined_is_looked_up(stack: Stack, files: SnapshotFiles) -> None:
    client = await stack.router(snapshot_turns=4)
    late = await stack.router(heartbeat_interval_seconds=5, worker_lease_seconds=60)
    worker = await stack.worker(client, files=files)
    session_id = await client.session()
    await client.append(session_id, range(30))
    assert (await late.park(session_id)).freed_bytes == LANE_BYTES
    assert worker.calls["WriteSnapshot"] == 1


async def test_a_session_without_a_history_needs_no_file(client: Client, storing: FakeWorker) -> None:
    session_id = await client.session()
    parked = await client.park(session_id)
    assert (parked.history_length, parked.freed_bytes) == (0, LANE_BYTES)
    assert storing.calls["WriteSnapshot"] == 0
    assert (await client.append(session_id, [1])).history_length == 1


# For room


@pytest.fixture
async def evicting(stack: Stack) -> Client:
    return await stack.router(**EVICT_IDLE)


async def test_the_longest_idle_session_is_parked_for_room(
    stack: Stack, evicting: Client, files: SnapshotFiles
) -> None:
    worker = await stack.worker(evicting, num_lanes=3, files=files)
    first, second, third = [await evicting.session() for _ in range(3)]
    for session_id in (second, third, first):
        await evicting.append(session_id, range(30))
    newest = await evicting.session()
    assert set(worker.lanes) == {first, third, newest}
    assert await is_parked(evicting, second)
    assert (await evicting.workers())["worker-a"].num_sessions == 3
    assert (await evicting.append(second, [7])).history_length == 31  # in place of the one that is idle for longest
    assert await is_parked(evicting, third)
    assert set(worker.lanes) == {first, second, newest}


async def test_who_cannot_be_parked_is_passed_over(stack: Stack) -> None:
    client = await stack.router(**(EVICT_IDLE | FORGETFUL))
    worker = await stack.worker(client, num_lanes=3)
    long_ones = [await client.session() for _ in range(2)]
    for session_id in long_ones:
        await turns(client, session_id)
    short = await client.session()
    await client.append(short, [1])
    newest = await client.session()
    assert set(worker.lanes) == {*long_ones, newest}
    assert await is_parked(client, short)


async def test_a_store_that_fails_is_no_reason_to_lose_a_session(stack: Stack, files: SnapshotFiles) -> None:
    client = await stack.router(**(EVICT_IDLE | {"queue_seconds": 1.2}))
    worker = await stack.worker(client, num_lanes=1, files=files)
    held = await client.session()
    await lean_on_the_store(stack, client, held)
    worker.failures["WriteSnapshot"] = [NO_STORE] * 100
    await client.append(held, [1])
    with pytest.raises(QueueTimedOut):
        await client.session()
    assert set(worker.lanes) == {held}
    worker.failures["WriteSnapshot"].clear()
    newest = await eventually(lambda: opened(client))
    assert set(worker.lanes) == {newest}
    await client.close(newest)
    assert await turns(client, held) == 21


async def opened(client: Client) -> str:
    try:
        return await client.session()
    except QueueTimedOut:
        return ""


async def test_nobody_takes_from_who_has_less(redis_url: str) -> None:
    async with keyed_on(redis_url, **EVICT_IDLE) as keyed:
        rich, poor = await keyed.tenant("rich"), await keyed.tenant("poor")
        hasty = keyed.client(rich.secret, await keyed.router(**(EVICT_IDLE | {"queue_seconds": 1.2})))
        worker = await keyed.worker(num_lanes=4)
        poor_session = await poor.session()
        rich_sessions = [await rich.session() for _ in range(3)]
        await poor.append(poor_session, [1])  # so that it is not the longest idle
        taken = await poor.session()
        assert set(worker.lanes) == {poor_session, taken, *rich_sessions[1:]}
        for session_id in rich_sessions[1:]:
            await begin_ahead(keyed.stack, session_id)
            await keyed.stack.redis.zrem(IDLE, session_id)
        with pytest.raises(QueueTimedOut):
            await hasty.session()
        with pytest.raises((NoCapacity, QueueTimedOut)):
            await hasty.append(rich_sessions[0], [1])
        assert set(worker.lanes) == {poor_session, taken, *rich_sessions[1:]}


async def test_over_several_pools_the_longest_idle_goes(stack: Stack, evicting: Client) -> None:
    one = await stack.worker(evicting, "worker-a", num_lanes=2, pool="one")
    other = await stack.worker(evicting, "worker-b", num_lanes=2, pool="other")
    sessions = [await evicting.session() for _ in range(4)]
    in_turn = sorted(sessions, key=lambda session_id: (session_id in other.lanes, session_id))
    in_turn = [in_turn[0], in_turn[2], in_turn[1], in_turn[3]]
    for session_id in in_turn:
        await evicting.append(session_id, [1])
    for session_id in in_turn:
        await evicting.append(await evicting.session(), [1])
        assert await is_parked(evicting, session_id)
    assert not set(in_turn) & {*one.lanes, *other.lanes}


async def test_no_room_is_made_before_all_pools_have_answered(
    stack: Stack, evicting: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = [await stack.worker(evicting, f"worker-{pool}", num_lanes=1, pool=pool) for pool in ("one", "other")]
    sessions = [await evicting.session() for _ in workers]
    for session_id in sessions:
        await evicting.append(session_id, [1])
    (slow_pool,) = (worker.pool for worker in workers if sessions[0] in worker.lanes)
    first_waiters = QueueStore.first_waiters

    async def slow(store: QueueStore, pool: PoolName, worker_ids: Sequence[WorkerId]) -> list[FirstWaiter]:
        await asyncio.sleep(0.2 if pool == slow_pool else 0)
        return await first_waiters(store, pool, worker_ids)

    monkeypatch.setattr(QueueStore, "first_waiters", slow)
    await evicting.session()
    assert [await is_parked(evicting, session_id) for session_id in sessions] == [True, False]


@pytest.fixture
async def hung(stack: Stack, files: SnapshotFiles, monkeypatch: pytest.MonkeyPatch) -> tuple[Client, FakeWorker]:
    """A worker whose store hangs for longer than anybody waits, and two sessions on its two lanes."""
    monkeypatch.setattr(parking_module, "_WRITE_SECONDS", 3600)
    client = await stack.router(**EVICT_IDLE)
    worker = await stack.worker(client, num_lanes=2, files=files)
    for _ in range(2):
        await client.append(await client.session(), [1])
    worker.writing.clear()
    return client, worker


async def test_a_store_that_hangs_costs_nobody_more_than_its_time(
    stack: Stack, hung: tuple[Client, FakeWorker], waits: Waits
) -> None:
    client, worker = hung
    call = await waiting(stack, client)
    await eventually(lambda: called(worker, "WriteSnapshot", 1))
    waits.end()
    with pytest.raises(QueueTimedOut):
        await call


async def test_who_waits_for_a_store_that_hangs_takes_another_lane(
    stack: Stack, hung: tuple[Client, FakeWorker]
) -> None:
    client, worker = hung
    call = await waiting(stack, client)
    await eventually(lambda: called(worker, "WriteSnapshot", 1))
    *_, newest = worker.lanes
    await client.close(newest)
    await call


async def test_a_resumed_session_does_not_wait_for_a_store_that_hangs(
    stack: Stack, hung: tuple[Client, FakeWorker], waits: Waits
) -> None:
    client, worker = hung
    parked = next(iter(worker.lanes))
    worker.writing.set()
    await client.park(parked)
    await client.append(await client.session(), [1])
    worker.writing.clear()
    written = worker.calls["WriteSnapshot"]
    call = asyncio.create_task(client.append(parked, [3]))
    await stand(stack, 1)
    await eventually(lambda: called(worker, "WriteSnapshot", written + 1))
    waits.end()
    with pytest.raises(QueueTimedOut):
        await call


async def test_a_resumed_session_makes_room_by_closing_where_that_is_the_policy(stack: Stack) -> None:
    client = await stack.router(admission="close-idle", close_idle_after_seconds=0.0, queue_seconds=600)
    worker = await stack.worker(client, num_lanes=1)
    first = await client.session()
    await client.append(first, [1])
    await client.park(first)
    second = await client.session()
    assert (await client.append(first, [2])).history_length == 2
    assert set(worker.lanes) == {first}
    with pytest.raises(SessionNotFound):
        await client.info(second)


@pytest.mark.parametrize("admission", ["evict-idle", "queue"])
async def test_a_resumed_session_waits_where_nobody_gives_way(stack: Stack, admission: str) -> None:
    rules: dict[str, Any] = {"admission": admission, "close_idle_after_seconds": 3600}
    hasty, client = await stack.router(**rules, queue_seconds=0.3), await stack.router(**rules, queue_seconds=600)
    await stack.worker(client, num_lanes=1)
    first = await client.session()
    await client.append(first, [1])
    await client.park(first)
    second = await client.session()
    with pytest.raises(QueueTimedOut):
        await hasty.append(first, [2], expected_history_length=1)
    await client.close(second)
    assert (await client.append(first, [2])).history_length == 2
