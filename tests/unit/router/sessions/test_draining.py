"""Workers are emptied: nobody is placed on them, and who is idle on them is parked."""

import asyncio
from typing import Any

import grpc
import pytest
import structlog

from kakeya_router.sessions.park_requests import Parked, ParkRequests
from kakeya_router.store.session_record import Incarnation, PoolName, SessionId, SessionRecord
from kakeya_router.store.sessions.lane_store import LaneStore
from kakeya_router.store.sessions.session_lists import SessionLists
from kakeya_shared.errors.tree import (
    Draining,
    Internal,
    InvalidField,
    NoCapacity,
    QueueTimedOut,
    SnapshotStoreUnavailable,
    StoreUnavailable,
)
from kakeya_stubs.admin.v1 import admin_pb2
from tests.unit.router.fake_worker import FakeWorker, SnapshotFiles
from tests.unit.router.keyed import keyed_on
from tests.unit.router.lanes.test_moving import holds
from tests.unit.router.lanes.test_parking import (
    called,
    expected,
    generated,
    is_parked,
    lean_on_the_store,
    ledger,
    turns,
)
from tests.unit.router.lanes.test_queue import waiting
from tests.unit.router.stack import FORGETFUL, LONG_SECONDS, Client, Stack, answer, eventually


@pytest.fixture
def files() -> SnapshotFiles:
    return SnapshotFiles()


@pytest.fixture
async def full(stack: Stack, client: Client, files: SnapshotFiles) -> FakeWorker:
    """A worker with a store, on which ten sessions are idle."""
    worker = await stack.worker(client, num_lanes=11, files=files)
    for _ in range(10):
        await client.append(await client.session(), range(30))
    return worker


async def is_empty(client: Client, worker: FakeWorker) -> bool:
    return not worker.lanes and (await client.workers())[worker.worker_id].num_sessions == 0


async def test_a_worker_that_shuts_down_is_emptied(
    stack: Stack, client: Client, full: FakeWorker, files: SnapshotFiles
) -> None:
    sessions = list(full.lanes)
    other = await stack.worker(client, "worker-b", num_lanes=20, files=files)
    full.draining = True
    await eventually(lambda: is_empty(client, full))
    assert (await client.workers())["worker-a"].draining
    for session_id in sessions:
        assert await is_parked(client, session_id)
        assert generated(await client.generate(session_id, 3)) == expected(30, 33)
    assert set(other.lanes) == set(sessions)
    assert other.calls["Append"] == 0  # snapshots had all of it
    full.draining = False
    await eventually(lambda: takes_sessions(client, full))


async def takes_sessions(client: Client, worker: FakeWorker) -> bool:
    return not (await client.workers())[worker.worker_id].draining


async def test_an_operator_empties_a_worker_and_takes_it_back(stack: Stack, client: Client, full: FakeWorker) -> None:
    worker = await client.drain("worker-a")
    assert (worker.worker_id, worker.draining) == ("worker-a", True)
    await eventually(lambda: is_empty(client, full))
    await client.beat(full)  # which says nothing of it
    assert (await client.workers())["worker-a"].draining
    with pytest.raises(NoCapacity):
        await client.session()
    assert not (await client.drain("worker-a", pool="tiny", undo=True)).draining
    await client.session()
    assert await ledger(client) != (0, 0, 0)


async def test_a_drained_worker_that_is_restarted_serves_again(stack: Stack, client: Client) -> None:
    worker = await stack.worker(client)
    await client.drain("worker-a")
    await client.join(worker)  # as after an outage of its router
    with pytest.raises(NoCapacity):
        await client.session()
    worker.incarnation += "-restarted"
    await client.join(worker)
    assert await client.session() in worker.lanes


async def test_a_session_in_use_is_taken_when_it_is_idle(stack: Stack, client: Client, files: SnapshotFiles) -> None:
    worker = await stack.worker(client, files=files)
    busy, idle = await client.session(), await client.session()
    for session_id in (busy, idle):
        await client.append(session_id, [1])
    worker.pause_in = 1
    call = client.generating(busy, 300)
    await call.read()
    await client.drain("worker-a")
    await eventually(lambda: is_parked(client, idle))
    await holds(lambda: set(worker.lanes) == {busy})
    assert worker.calls["WriteSnapshot"] <= 2  # the busy one is not written with each pass
    worker.flowing.set()
    while (response := await call.read()) is not grpc.aio.EOF:
        last = response
    assert last.done.history_length == 301
    await eventually(lambda: is_parked(client, busy))
    await eventually(lambda: is_empty(client, worker))  # its lane is closed after that


async def test_who_calls_before_it_is_parked_goes_on_elsewhere(
    stack: Stack, client: Client, files: SnapshotFiles
) -> None:
    worker = await stack.worker(client, files=files)
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    other = await stack.worker(client, "worker-b", files=files)
    worker.failures["Generate"] = [Draining("the worker is shutting down")]
    assert generated(await client.generate(session_id, 5)) == expected(2, 7)
    assert set(other.lanes) == {session_id}


async def test_several_routers_empty_a_worker_together(
    stack: Stack, client: Client, full: FakeWorker, files: SnapshotFiles
) -> None:
    for _ in range(2):
        await stack.router()
    sessions = list(full.lanes)
    full.draining = True
    await eventually(lambda: is_empty(client, full))
    await stack.worker(client, "worker-b", num_lanes=20, files=files)
    for session_id in sessions:
        assert (await client.append(session_id, [1])).history_length == 31


async def one_and_another_worker(stack: Stack, client: Client, files: SnapshotFiles) -> tuple[str, FakeWorker]:
    """A session of 30 tokens on worker-a, and worker-b, which reads its snapshots."""
    await stack.worker(client, files=files)
    session_id = await client.session()
    await client.append(session_id, range(30))
    return session_id, await stack.worker(client, "worker-b", files=files)


async def test_who_moved_while_the_sessions_were_listed_stays_where_it_is(
    stack: Stack, client: Client, files: SnapshotFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is among the sessions of the worker that is emptied, and its record is of another one already."""
    session_id, other = await one_and_another_worker(stack, client, files)
    await client.drain("worker-a")
    await eventually(lambda: is_parked(client, session_id))
    assert generated(await client.generate(session_id, 3)) == expected(30, 33)
    num_passes = 0

    async def listed_before(lists: SessionLists, pool: PoolName, _incarnation: str, _limit: int) -> list[SessionRecord]:
        nonlocal num_passes
        num_passes += 1
        return await lists.records(pool, [SessionId(session_id)])

    monkeypatch.setattr(SessionLists, "of_incarnation", listed_before)
    while num_passes < 4:  # the first three have ended then
        await asyncio.sleep(0.01)
    assert set(other.lanes) == {session_id}
    assert other.calls["CloseSession"] == 0


async def test_who_moves_just_before_it_is_parked_stays_where_it_is(
    stack: Stack, client: Client, files: SnapshotFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id, other = await one_and_another_worker(stack, client, files)
    passes = asyncio.Semaphore(0)
    park = ParkRequests.park

    async def late(requests: ParkRequests, record: SessionRecord, **options: Incarnation) -> Parked:
        await park(requests, record, **options)  # as another router does
        assert generated(await client.generate(session_id, 3)) == expected(30, 33)
        parked = await park(requests, record, **options)
        passes.release()
        return parked

    monkeypatch.setattr(ParkRequests, "park", late)
    await client.drain("worker-a")
    await passes.acquire()
    assert set(other.lanes) == {session_id}
    assert other.calls["CloseSession"] == 0


async def test_what_cannot_be_parked_stays_and_is_reported_once(stack: Stack) -> None:
    client = await stack.router(**FORGETFUL)
    worker = await stack.worker(client)
    session_id, short = await client.session(), await client.session()
    await turns(client, session_id)
    await client.append(short, [1])
    with structlog.testing.capture_logs() as logs:
        await client.drain("worker-a")
        await eventually(lambda: is_parked(client, short))
        again = await client.drain("worker-a", undo=True)
        assert again.num_sessions == 1
        await client.drain("worker-a")
        num_passes = await _passes(stack, 3)
    assert num_passes >= 3
    assert set(worker.lanes) == {session_id}
    events = [line for line in logs if "cannot leave a worker" in line["event"]]
    assert [line["session_id"] for line in events] in ([session_id], [session_id] * 2)  # once for each drain
    assert await turns(client, session_id) == 10


async def _passes(stack: Stack, number: int) -> int:
    """Waits for some passes over the worker's sessions; how many there were."""
    seen = 0
    idle_of = SessionLists.idle_of
    enough = asyncio.Event()

    async def counted(self: SessionLists, *arguments: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen >= number:
            enough.set()
        return await idle_of(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SessionLists, "idle_of", counted)
        await asyncio.wait_for(enough.wait(), LONG_SECONDS)
    return seen


@pytest.mark.parametrize("error", [StoreUnavailable("away"), RuntimeError("what is this?"), Internal("no idea")])
async def test_a_pass_that_fails_is_followed_by_another(
    client: Client, full: FakeWorker, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    park, failures = LaneStore.park, [error] * 3

    async def failing(self: LaneStore, *arguments: Any, **fields: Any) -> Any:
        if failures:
            raise failures.pop()
        return await park(self, *arguments, **fields)

    monkeypatch.setattr(LaneStore, "park", failing)
    await client.drain("worker-a")
    await eventually(lambda: is_empty(client, full))
    assert not failures


async def test_a_store_that_fails_for_a_while_delays_a_drain(stack: Stack, files: SnapshotFiles) -> None:
    client = await stack.router()
    worker = await stack.worker(client, files=files)
    session_id = await client.session()
    await lean_on_the_store(stack, client, session_id)
    worker.failures["WriteSnapshot"] = [SnapshotStoreUnavailable("the disk is full")] * 3
    await client.append(session_id, [1])
    await client.drain("worker-a")
    await eventually(lambda: is_empty(client, worker))
    assert await is_parked(client, session_id)


async def test_a_worker_whose_store_hangs_holds_up_no_other_drain(stack: Stack, client: Client) -> None:
    """Nor the router's end, which comes while it still hangs."""
    hung = await stack.worker(client, "worker-a", num_lanes=1, files=SnapshotFiles())
    stuck = await client.session()
    await client.append(stuck, [1])
    hung.writing.clear()
    await stack.worker(client, "worker-b", files=SnapshotFiles())
    other = await client.session()
    await client.append(other, [1])
    await client.drain("worker-a")
    await eventually(lambda: called(hung, "WriteSnapshot", 1))
    await client.drain("worker-b")
    await eventually(lambda: is_parked(client, other))
    assert not await is_parked(client, stuck)


async def test_who_waits_is_let_in_by_another_worker_or_when_the_drain_is_undone(stack: Stack) -> None:
    client = await stack.router(admission="queue", queue_seconds=600)
    await stack.worker(client, num_lanes=1)
    await client.drain("worker-a")
    call = await waiting(stack, client)
    other = await stack.worker(client, "worker-b", num_lanes=1)
    assert await call in other.lanes
    call = await waiting(stack, client)
    await client.drain("worker-a", undo=True)
    await call


async def test_an_idle_lane_of_a_draining_worker_is_no_room(stack: Stack) -> None:
    client = await stack.router(admission="close-idle", close_idle_after_seconds=0.0, queue_seconds=1.2, **FORGETFUL)
    worker = await stack.worker(client, num_lanes=1)
    session_id = await client.session()
    await turns(client, session_id)
    await client.drain("worker-a")
    with pytest.raises(QueueTimedOut):
        await client.session()
    assert set(worker.lanes) == {session_id}


async def test_only_a_worker_that_there_is_can_be_drained(stack: Stack, client: Client) -> None:
    for name, pool in (("worker-a", "one"), ("worker-a", "other"), ("worker-b", "one")):
        await stack.worker(client, name, pool=pool)
    for fields, field in (
        ({"worker_id": "nobody"}, "worker_id"),
        ({"worker_id": "worker-b", "pool": "other"}, "worker_id"),
        ({"worker_id": "worker-a"}, "pool"),
        ({"worker_id": "worker-a", "pool": "N O"}, "pool"),
        ({"worker_id": "x" * 129}, "worker_id"),
    ):
        with pytest.raises(InvalidField) as raised:
            await client.drain(**fields)
        assert raised.value.metadata == {"field": field}
    assert (await client.drain("worker-b")).pool == "one"
    assert (await client.drain("worker-a", pool="other")).pool == "other"
    found = (await answer(client.admin.ListWorkers(admin_pb2.ListWorkersRequest()))).workers
    assert {(worker.pool, worker.worker_id) for worker in found if worker.draining} == {
        ("one", "worker-b"),
        ("other", "worker-a"),
    }


async def test_drains_are_audited(redis_url: str) -> None:
    async with keyed_on(redis_url) as keyed:
        await keyed.worker()
        with structlog.testing.capture_logs() as logs:
            await keyed.admin.drain("worker-a")
            await keyed.admin.drain("worker-a", undo=True)
            with pytest.raises(InvalidField):
                await keyed.admin.drain("nobody")
    lines = [(line["action"], line["subject"], line["outcome"]) for line in logs if line["event"] == "audit"]
    assert lines == [
        ("worker.drain", "worker:worker-a pool:tiny", "done"),
        ("worker.undrain", "worker:worker-a pool:tiny", "done"),
        ("worker.drain", "worker:nobody", "INVALID_FIELD"),
    ]
