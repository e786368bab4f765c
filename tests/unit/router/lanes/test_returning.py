"""Sessions that come back find no room: they stand in the line with the new ones, and nobody overtakes."""

import asyncio
from typing import Any

import pytest

from kakeya_router.lanes import parking
from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.session_record import PoolName
from kakeya_router.store.sessions.journal_store import JournalStore
from kakeya_router.store.sessions.lane_store import LaneStore
from kakeya_router.store.sessions.queue_store import QueueStore
from kakeya_router.store.sessions.session_changes import INTERRUPTED, UNLIMITED
from kakeya_shared.errors.tree import NoCapacity, QueueFull, QueueTimedOut, SessionClosed
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.fake_worker import FakeWorker, SnapshotFiles
from tests.unit.router.lanes.test_queue import KEYS, QUEUE, line, place, stand, waiting
from tests.unit.router.lapses import Waits, die
from tests.unit.router.operations.test_recovery import called, drained
from tests.unit.router.stack import Client, Stack, answer, eventually


@pytest.fixture
async def client(stack: Stack) -> Client:
    return await stack.router(**QUEUE)


@pytest.fixture
async def worker(stack: Stack, client: Client) -> FakeWorker:
    return await stack.worker(client, num_lanes=1, files=SnapshotFiles())


@pytest.fixture
async def parked(client: Client, worker: FakeWorker) -> str:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    await client.park(session_id)
    return session_id


@pytest.fixture
async def holder(client: Client, parked: str) -> str:
    """Has the only lane."""
    return await client.session()


async def coming_back(stack: Stack, client: Client, session_id: str) -> "asyncio.Task[api.AppendTokensResponse]":
    """A call that has taken its place in the line."""
    number = len(await line(stack))
    task = asyncio.create_task(client.append(session_id, [3]))
    await stand(stack, number + 1)
    return task


@pytest.mark.parametrize(("store", "method"), [(LaneStore, "resume"), (JournalStore, "past")])
async def test_a_session_that_is_closed_while_it_is_resumed(
    client: Client, parked: str, monkeypatch: pytest.MonkeyPatch, store: type[Any], method: str
) -> None:
    called = getattr(store, method)

    async def late(*arguments: Any, **more: Any) -> Any:
        monkeypatch.setattr(store, method, called)
        await client.close(parked)
        return await called(*arguments, **more)

    monkeypatch.setattr(store, method, late)
    with pytest.raises(SessionClosed):
        await client.append(parked, [3])
    assert await client.session()  # nobody holds the only lane


async def test_who_came_before_has_the_lane_before(
    stack: Stack, client: Client, worker: FakeWorker, parked: str, holder: str
) -> None:
    new = await waiting(stack, client)
    back = await coming_back(stack, client, parked)
    await client.close(holder)
    opened = await new
    assert not back.done()
    assert set(worker.lanes) == {opened}
    await client.close(opened)
    assert (await back).history_length == 3
    assert set(worker.lanes) == {parked}
    assert await line(stack) == []


async def test_who_comes_later_has_it_later(
    stack: Stack, client: Client, worker: FakeWorker, parked: str, holder: str
) -> None:
    back = await coming_back(stack, client, parked)
    new = await waiting(stack, client)
    await client.close(holder)
    assert (await back).history_length == 3
    assert not new.done()
    assert set(worker.lanes) == {parked}
    await client.close(parked)
    opened = await new
    assert set(worker.lanes) == {opened}


async def test_a_free_lane_is_left_to_first_waiters_it_is(
    stack: Stack, client: Client, worker: FakeWorker, parked: str, redis_url: str
) -> None:
    """He may be another router's, which has not come to it yet."""
    connection = RedisConnection(redis_url)
    others = QueueStore(connection, lease_seconds=60.0, queue_length=100)
    assert (await others.enter(PoolName("tiny"), place("before"), UNLIMITED)).outcome == "waiting"
    back = await coming_back(stack, client, parked)
    assert (await others.enter(PoolName("tiny"), place("after"), UNLIMITED)).outcome == "waiting"
    await asyncio.sleep(1.2)  # it has looked at least once more
    assert not back.done()
    assert not worker.lanes
    await others.leave(PoolName("tiny"), "before")
    assert (await back).history_length == 3
    await connection.aclose()


async def test_a_full_line_takes_nobody(stack: Stack) -> None:
    client = await stack.router(**(QUEUE | {"queue_length": 1}))
    await stack.worker(client, num_lanes=1)
    session_id = await client.session()
    await client.append(session_id, [1])
    await client.park(session_id)
    holder = await client.session()
    new = await waiting(stack, client)
    with pytest.raises(QueueFull):
        await client.append(session_id, [2])
    assert (await client.info(session_id)).state == api.SESSION_STATE_PARKED
    await client.close(holder)
    await client.close(await new)
    # The refused append's token is no part of the history.
    assert (await client.append(session_id, [2], expected_history_length=1)).history_length == 2


async def test_who_has_waited_too_long_leaves_the_line(stack: Stack) -> None:
    client = await stack.router(**(QUEUE | {"queue_seconds": 0.3}))
    await stack.worker(client, num_lanes=1)
    session_id = await client.session()
    await client.append(session_id, [1])
    await client.park(session_id)
    await client.session()
    with pytest.raises(QueueTimedOut, match=r"0\.3 s"):
        await client.append(session_id, [2])
    await stand(stack, 0)
    assert (await client.info(session_id)).state == api.SESSION_STATE_PARKED


async def test_a_client_that_leaves_leaves_the_line(stack: Stack, client: Client, parked: str, holder: str) -> None:
    call = client.runtime.AppendTokens(api.AppendTokensRequest(session_id=parked, token_ids=[3]))
    await stand(stack, 1)
    call.cancel()
    await client.close(holder)  # a prefill is completed although nobody waits for it

    async def is_there() -> bool:
        return (await client.info(parked)).history_length == 2

    await eventually(is_there)
    await stand(stack, 0)


async def test_a_worker_that_does_not_take_it_is_tried_again(
    stack: Stack, client: Client, worker: FakeWorker, parked: str, holder: str
) -> None:
    back = await coming_back(stack, client, parked)
    worker.failures["OpenSession"].append(NoCapacity("it has not learnt of it yet"))
    await client.close(holder)
    assert (await back).history_length == 3
    assert worker.calls["OpenSession"] == 4
    assert await line(stack) == []


async def test_a_place_that_was_lost_is_taken_again(
    stack: Stack, client: Client, worker: FakeWorker, parked: str, holder: str
) -> None:
    back = await coming_back(stack, client, parked)
    (place,) = await line(stack)
    await stack.redis.delete(KEYS.queue, KEYS.waiters)
    await stand(stack, 1)
    assert await line(stack) == [place]
    await client.close(holder)
    assert (await back).history_length == 3


async def test_the_source_of_a_fork_comes_before_all_who_wait(stack: Stack, client: Client) -> None:
    """The fork may be the first of them, and waits for it."""
    worker = await stack.worker(client, num_lanes=2, files=SnapshotFiles())
    source = await client.session()
    await client.append(source, [1])
    await client.park(source)
    holders = [await client.session() for _ in range(2)]
    new = await waiting(stack, client)
    fork = asyncio.create_task(client.session(fork_from=api.ForkPoint(session_id=source)))
    await stand(stack, 2)
    assert (await line(stack))[0].startswith(INTERRUPTED)
    for holder in holders:
        await client.close(holder)
    await eventually(lambda: _holds(worker, source))
    await client.close(await new)
    forked = await fork
    assert set(worker.lanes) == {source, forked}


async def _holds(worker: FakeWorker, session_id: str) -> bool:
    return session_id in worker.lanes


async def test_an_answer_in_the_making_comes_before_a_hundred_new_sessions(stack: Stack, client: Client) -> None:
    files = SnapshotFiles()
    first = await stack.worker(client, "worker-a", num_lanes=1, files=files)
    session_id = await client.session()
    await client.append(session_id, [1])
    second = await stack.worker(client, "worker-b", num_lanes=1, files=files)
    holder = await client.session()
    new = [asyncio.create_task(client.session()) for _ in range(100)]
    await stand(stack, len(new))
    call: Any = client.generating(session_id, 1_000_000)
    while not (await call.read()).HasField("token_id"):
        continue
    await die(first)
    await stand(stack, len(new) + 1)
    assert (await line(stack))[0].startswith(INTERRUPTED)
    await client.close(holder)
    await eventually(lambda: _holds(second, session_id))
    assert not any(task.done() for task in new)
    call.cancel()
    await client.close(session_id)
    opened, _ = await asyncio.wait(new, return_when=asyncio.FIRST_COMPLETED)
    assert len(opened) == 1
    for task in new:
        task.cancel()
    await asyncio.gather(*new, return_exceptions=True)


async def losing_its_worker(stack: Stack, *, is_stuck: bool) -> tuple[Client, FakeWorker, str, Any]:
    """A session in the middle of an answer, whose worker is gone; the other one is full, with an idle session."""
    client = await stack.router(admission="evict-idle", close_idle_after_seconds=0.0, queue_seconds=600)
    files = SnapshotFiles()
    first = await stack.worker(client, "worker-a", num_lanes=1, files=files)
    session_id = await client.session()
    await client.append(session_id, [1])
    second = await stack.worker(client, "worker-b", num_lanes=1, files=files)
    await client.append(await client.session(), [1])
    call = client.generating(session_id, 1_000_000)
    while not (await call.read()).HasField("token_id"):
        continue
    if is_stuck:
        second.writing.clear()
    await die(first)
    return client, second, session_id, call


async def test_an_answer_in_the_making_has_room_made(stack: Stack) -> None:
    client, worker, session_id, call = await losing_its_worker(stack, is_stuck=False)
    (idle,) = worker.lanes
    await eventually(lambda: _holds(worker, session_id))
    assert set(worker.lanes) == {session_id}
    assert (await client.info(idle)).state == api.SESSION_STATE_PARKED
    call.cancel()


async def test_an_answer_in_the_making_waits_for_no_store_that_hangs(
    stack: Stack, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "_WRITE_SECONDS", 3600)
    client, worker, session_id, call = await losing_its_worker(stack, is_stuck=True)
    await stand(stack, 1)
    await eventually(lambda: called(worker, "WriteSnapshot", 1))
    waits.end()
    with pytest.raises(NoCapacity):
        await answer(drained(call))
    assert (await client.info(session_id)).state == api.SESSION_STATE_PARKED
