"""Sessions move to workers that do not read the snapshots of the one that is emptied."""

import asyncio
from collections.abc import Callable

import pytest

from kakeya_router.store.sessions.creation_store import CreationStore
from kakeya_router.store.sessions.lane_store import LaneStore
from kakeya_router.store.sessions.operation_store import OperationStore
from kakeya_router.store.sessions.session_store import SessionStore
from kakeya_router.workers.fleet import Fleet
from kakeya_shared.errors.tree import (
    BoundaryNotReachable,
    Draining,
    Internal,
    NoCapacity,
    NoWorker,
    SnapshotRefused,
    SnapshotStoreUnavailable,
    StoreUnavailable,
    WorkerLost,
)
from tests.unit.router.fake_worker import BYTES_PER_TOKEN, LANE_BYTES, FakeWorker, Lane, SnapshotFiles
from tests.unit.router.lanes.test_parking import (
    SESSION,
    expected,
    generated,
    is_parked,
    lean_on_the_store,
    ledger,
    state,
    turns,
)
from tests.unit.router.stack import FORGETFUL, Client, Stack, eventually, has_snapshot, written_session


@pytest.fixture
async def forgetful(stack: Stack) -> Client:
    """Of a router whose journals do not reach back."""
    return await stack.router(**FORGETFUL)


@pytest.fixture
async def left(stack: Stack, forgetful: Client) -> FakeWorker:
    """Has no snapshot store."""
    return await stack.worker(forgetful)


@pytest.fixture
async def session_id(forgetful: Client, left: FakeWorker) -> str:
    """On `left`, with 10 tokens of which the journal has not all."""
    session_id = await forgetful.session()
    await turns(forgetful, session_id, 2)
    return session_id


async def holds(condition: Callable[[], object]) -> None:
    """Waits until it does."""

    async def is_true() -> bool:
        return bool(condition())

    await eventually(is_true)


async def is_on(client: Client, session_id: str, worker: FakeWorker) -> bool:
    return (await client.info(session_id)).worker == worker.worker_id


async def test_what_the_journal_has_not_is_moved(
    stack: Stack, forgetful: Client, left: FakeWorker, session_id: str
) -> None:
    other = await stack.worker(forgetful, "worker-b")
    await forgetful.drain("worker-a")
    await eventually(lambda: is_on(forgetful, session_id, other))
    await holds(lambda: not left.lanes)
    info = await forgetful.info(session_id)
    assert (info.history_length, info.kv_live_bytes) == (10, 10 * BYTES_PER_TOKEN)
    assert info.epoch > 1
    assert await state(forgetful, session_id) == "OPEN"
    assert await ledger(forgetful, "worker-a") == (0, 0, 0)
    assert await ledger(forgetful, "worker-b") == (LANE_BYTES, 10 * BYTES_PER_TOKEN, 1)
    await forgetful.beat(other)
    assert other.lanes[session_id].epoch > 1
    assert generated(await forgetful.generate(session_id, 5)) == expected(10, 15)
    assert other.calls["Append"] == 0
    await forgetful.close(session_id)
    assert await ledger(forgetful, "worker-b") == (0, 0, 0)


@pytest.fixture
async def other(stack: Stack, forgetful: Client, session_id: str) -> FakeWorker:
    return await stack.worker(forgetful, "worker-b")


_SHUTS_DOWN = Draining("the worker is shutting down")


@pytest.mark.parametrize("is_offered", [False, True], ids=["", "somebody moves it already"])
async def test_a_generate_that_its_worker_does_not_begin_takes_the_session_along(
    stack: Stack, forgetful: Client, left: FakeWorker, session_id: str, other: FakeWorker, is_offered: bool
) -> None:
    if is_offered:
        offer = {"offered_epoch": 7, "offered_until_ms": 1 << 50}
        await stack.redis.hset(f"kakeya:{{tiny}}:session:{session_id}", mapping=offer)
    left.failures["Generate"] = [_SHUTS_DOWN]
    assert generated(await forgetful.generate(session_id, 5)) == expected(10, 15)
    info = await forgetful.info(session_id)
    assert (info.worker, info.history_length) == ("worker-b", 15)
    assert info.epoch > (7 if is_offered else 1)
    await holds(lambda: not left.lanes)
    assert await ledger(forgetful, "worker-a") == (0, 0, 0)
    assert await ledger(forgetful, "worker-b") == (LANE_BYTES, 15 * BYTES_PER_TOKEN, 1)
    assert (left.calls["ReadLane"], other.calls["Append"]) == (1, 0)


async def test_so_does_an_append(forgetful: Client, left: FakeWorker, session_id: str, other: FakeWorker) -> None:
    left.failures["Append"] = [_SHUTS_DOWN]
    assert (await forgetful.append(session_id, [1, 2])).history_length == 12
    assert await is_on(forgetful, session_id, other)
    assert other.lanes[session_id].token_ids[-2:] == [1, 2]
    assert other.calls["Append"] == 1, "of what it came with, and no more"


async def test_a_call_whose_session_nobody_takes_says_so(
    forgetful: Client, left: FakeWorker, session_id: str, other: FakeWorker
) -> None:
    left.failures["Generate"] = [_SHUTS_DOWN]
    other.failures["WriteLane"] = [NoCapacity("no lane")]
    with pytest.raises(WorkerLost):
        await forgetful.generate(session_id, 5)


async def test_where_others_read_its_snapshots_it_is_parked(stack: Stack, client: Client) -> None:
    files = SnapshotFiles()
    worker = await stack.worker(client, files=files)
    session_id = await client.session()
    await client.append(session_id, range(30))
    await stack.worker(client, "worker-b", files=files)
    await client.drain("worker-a")
    await eventually(lambda: is_parked(client, session_id))
    assert not worker.calls["ReadLane"]


async def test_its_new_worker_writes_it_into_its_own_store(stack: Stack, client: Client) -> None:
    stores = SnapshotFiles("a"), SnapshotFiles("b")
    await stack.worker(client, files=stores[0])
    session_id = await client.session()
    length = await lean_on_the_store(stack, client, session_id)
    other = await stack.worker(client, "worker-b", files=stores[1])
    await client.drain("worker-a")
    await eventually(lambda: is_on(client, session_id, other))
    await holds(lambda: stores[1].contents and not stores[0].contents)
    await eventually(lambda: has_snapshot(stack, session_id, length))
    other.stop_beating()
    await other.vanish()
    third = await stack.worker(client, "worker-c", files=stores[1])
    assert generated(await client.generate(session_id, 5)) == expected(length, length + 5)
    assert session_id in third.lanes


async def test_only_a_worker_of_its_fingerprint_with_room_gets_it(
    stack: Stack, forgetful: Client, left: FakeWorker, session_id: str
) -> None:
    await stack.worker(forgetful, "worker-b", fingerprint="0" * 64)
    full = await stack.worker(forgetful, "worker-c", num_lanes=1)
    await stack.redis.hset("kakeya:{tiny}:worker:worker-c", "reserved_bytes", LANE_BYTES)
    await forgetful.drain("worker-a")
    await asyncio.sleep(0.3)
    assert set(left.lanes) == {session_id}
    assert not full.calls["WriteLane"]
    roomy = await stack.worker(forgetful, "worker-d")
    await eventually(lambda: is_on(forgetful, session_id, roomy))


@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("ReadLane", Internal("the backend failed")),
        ("WriteLane", NoCapacity("no lane")),
        ("WriteLane", SnapshotRefused("damaged")),
        ("WriteLane", Draining("the worker is shutting down")),
    ],
)
async def test_a_worker_that_does_not_take_it_is_passed_over(
    stack: Stack, forgetful: Client, left: FakeWorker, session_id: str, method: str, error: Exception
) -> None:
    others = [await stack.worker(forgetful, f"worker-{name}") for name in "bc"]
    (left if method == "ReadLane" else others[0]).failures[method] = [error]
    await forgetful.drain("worker-a")
    await holds(lambda: not left.lanes)
    assert generated(await forgetful.generate(session_id, 5)) == expected(10, 15)
    assert sum(len(worker.lanes) for worker in others) == 1


async def test_a_call_that_comes_meanwhile_wins(
    stack: Stack, forgetful: Client, left: FakeWorker, session_id: str
) -> None:
    other = await stack.worker(forgetful, "worker-b")
    left.reading.clear()
    await forgetful.drain("worker-a")
    await holds(lambda: left.calls["ReadLane"])
    assert generated(await forgetful.generate(session_id, 5)) == expected(10, 15)
    left.reading.set()
    await eventually(lambda: is_on(forgetful, session_id, other))
    assert left.calls["ReadLane"] == 2
    assert (await forgetful.info(session_id)).epoch > 1
    assert generated(await forgetful.generate(session_id, 5)) == expected(15, 20)


async def test_what_happens_between_the_two_copies_is_not_lost(
    stack: Stack, forgetful: Client, left: FakeWorker, session_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lane was copied as a whole, and then there is a turn."""
    other = await stack.worker(forgetful, "worker-b")
    move, calls = LaneStore.move, 0

    async def late(self: SessionStore, *arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 1:
            await turns(forgetful, session_id)
        return await move(self, *arguments)  # type: ignore[arg-type]  # whatever it was called with

    monkeypatch.setattr(LaneStore, "move", late)
    await forgetful.drain("worker-a")
    await eventually(lambda: is_on(forgetful, session_id, other))
    assert calls == 2
    assert generated(await forgetful.generate(session_id, 5)) == expected(15, 20)


@pytest.fixture
def late_calls(
    forgetful: Client, session_id: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[[type[SessionStore], str, FakeWorker], None]:
    """Has the session move to a worker after the next call has looked at it, and before the method of the store."""

    def arrange(store: type[SessionStore], method: str, other: FakeWorker) -> None:
        original = getattr(store, method)

        async def late(self: SessionStore, *arguments: object, **more: object) -> object:
            monkeypatch.setattr(store, method, original)
            await forgetful.drain("worker-a")
            await eventually(lambda: is_on(forgetful, session_id, other))
            return await original(self, *arguments, **more)

        monkeypatch.setattr(store, method, late)

    return arrange


async def test_a_call_that_looked_at_it_before_finds_it(
    stack: Stack, forgetful: Client, session_id: str, late_calls: Callable[[type[SessionStore], str, FakeWorker], None]
) -> None:
    other = await stack.worker(forgetful, "worker-b")
    late_calls(OperationStore, "begin_operation", other)
    assert generated(await forgetful.generate(session_id, 5)) == expected(10, 15)
    assert (await forgetful.info(session_id)).epoch > 1


async def test_a_fork_that_looked_at_it_before_finds_it(
    stack: Stack, forgetful: Client, session_id: str, late_calls: Callable[[type[SessionStore], str, FakeWorker], None]
) -> None:
    other = await stack.worker(forgetful, "worker-b")
    late_calls(CreationStore, "use_source", other)
    fork = await forgetful.session(fork_from={"session_id": session_id})
    assert generated(await forgetful.generate(fork, 5)) == expected(10, 15)
    assert fork in other.lanes


async def test_an_earlier_fork_that_looked_at_it_before_finds_it(
    stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stack.worker(client)
    session_id = await client.session()
    await turns(client, session_id, 2)
    other = await stack.worker(client, "worker-b")
    original = CreationStore.use_source

    async def late(self: SessionStore, *arguments: object, **more: object) -> object:
        monkeypatch.undo()
        await client.drain("worker-a")
        await eventually(lambda: is_on(client, session_id, other))
        return await original(self, *arguments, **more)  # type: ignore[arg-type]  # whatever it was called with

    monkeypatch.setattr(CreationStore, "use_source", late)
    fork = await client.session(fork_from={"session_id": session_id, "boundary": 5})
    assert generated(await client.generate(fork, 3)) == expected(5, 8)


async def test_it_does_not_go_back_to_where_nobody_has_it(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its snapshots are in the store of a worker that it has left, and its new one has none. The router sees that,
    although it has last looked at its workers before.
    """
    fleets: list[Fleet] = []

    async def run(fleet: Fleet) -> None:
        fleets.append(fleet)
        await asyncio.Event().wait()

    monkeypatch.setattr(Fleet, "run", run)
    client = await stack.router()
    left = await stack.worker(client, files=SnapshotFiles("a"))
    session_id = await client.session()
    for _ in range(8):
        length = await turns(client, session_id)
        await eventually(lambda: has_snapshot(stack, session_id, length))  # noqa: B023  # awaited at once
    other = await stack.worker(client, "worker-b")
    await client.drain("worker-a")
    await fleets[0].look()
    await eventually(lambda: is_on(client, session_id, other))
    left.stop_beating()
    await left.vanish()
    with pytest.raises(BoundaryNotReachable) as caught:
        await client.rewind(session_id, length - 5)
    assert caught.value.metadata["reachable"] == str(length)
    assert generated(await client.generate(session_id, 5)) == expected(length, length + 5)


async def test_a_turn_that_ended_just_before_is_in_the_new_store(stack: Stack, client: Client) -> None:
    """While its old worker still writes, its new one is asked to."""
    stores = SnapshotFiles("a"), SnapshotFiles("b")
    left = await stack.worker(client, files=stores[0])
    session_id = await client.session()
    length = await lean_on_the_store(stack, client, session_id)
    left.writing.clear()
    length = await turns(client, session_id)
    other = await stack.worker(client, "worker-b", files=stores[1])
    left.reading.clear()
    await client.drain("worker-a")
    await holds(lambda: left.calls["ReadLane"])
    left.reading.set()
    await eventually(lambda: is_on(client, session_id, other))
    left.writing.set()
    await holds(lambda: any(f"-{length}." in name for name in stores[1].contents))


async def test_what_no_worker_takes_is_parked_if_its_journal_has_all(
    stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with workers of a version that cannot be asked."""
    left = await stack.worker(client)
    session_id = await client.session()
    await client.append(session_id, range(5))
    await stack.worker(client, "worker-b")
    left.failures["ReadLane"] = [Internal("no such method")] * 100
    await client.drain("worker-a")
    await eventually(lambda: is_parked(client, session_id))
    assert generated(await client.generate(session_id, 5)) == expected(5, 10)


async def test_what_no_worker_takes_is_not_copied_over_and_over(
    stack: Stack, forgetful: Client, left: FakeWorker, session_id: str
) -> None:
    other = await stack.worker(forgetful, "worker-b")
    left.failures["ReadLane"] = [Internal("no such method")] * 100
    await forgetful.drain("worker-a")
    await holds(lambda: left.calls["ReadLane"])
    await asyncio.sleep(0.5)  # some passes
    assert left.calls["ReadLane"] == 1
    assert set(left.lanes) == {session_id}
    assert not other.lanes
    assert await state(forgetful, session_id) == "OPEN"


async def test_of_several_routers_one_moves_it(
    stack: Stack, forgetful: Client, left: FakeWorker, session_id: str
) -> None:
    for _ in range(2):
        await stack.router(**FORGETFUL)
    empty = await forgetful.session()  # the journal has all of it: it could be parked
    other = await stack.worker(forgetful, "worker-b")
    left.reading.clear()
    await forgetful.drain("worker-a")
    await holds(lambda: left.calls["ReadLane"] >= 2)
    await asyncio.sleep(0.3)  # some passes of all three
    assert left.calls["ReadLane"] == 2
    left.reading.set()
    for each in (session_id, empty):
        await eventually(lambda: is_on(forgetful, each, other))  # noqa: B023  # awaited at once
    assert generated(await forgetful.generate(session_id, 5)) == expected(10, 15)


async def test_room_that_is_taken_meanwhile_is_not_taken_twice(
    stack: Stack, forgetful: Client, left: FakeWorker, session_id: str
) -> None:
    other = await stack.worker(forgetful, "worker-b", num_lanes=1)
    left.reading.clear()
    await forgetful.drain("worker-a")
    await holds(lambda: left.calls["ReadLane"])
    other.num_lanes = 2  # in its slab only
    taken = await forgetful.session()
    left.reading.set()
    await holds(lambda: other.calls["CloseSession"])
    assert set(other.lanes) == {taken}
    await forgetful.close(taken)
    await eventually(lambda: is_on(forgetful, session_id, other))


async def test_a_move_whose_end_redis_does_not_tell_is_found_out(
    stack: Stack, forgetful: Client, left: FakeWorker, session_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await stack.worker(forgetful, "worker-b")
    move = LaneStore.move

    async def lost_answer(self: SessionStore, *arguments: object) -> object:
        await move(self, *arguments)  # type: ignore[arg-type]  # whatever it was called with
        monkeypatch.undo()
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(LaneStore, "move", lost_answer)
    await forgetful.drain("worker-a")
    await eventually(lambda: is_on(forgetful, session_id, other))
    assert [orphan.session_id for orphan in (await forgetful.beat(left)).orphans] == [session_id]
    assert not (await forgetful.beat(other)).orphans
    assert generated(await forgetful.generate(session_id, 5)) == expected(10, 15)


async def test_a_lane_on_its_way_is_no_orphan_until_its_offer_lapses(
    stack: Stack, forgetful: Client, left: FakeWorker, session_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await stack.worker(forgetful, "worker-b")
    store, failed = LaneStore.move, asyncio.Event()

    async def failing(self: SessionStore, *arguments: object) -> object:
        failed.set()
        raise StoreUnavailable("Redis is away")

    monkeypatch.setattr(LaneStore, "move", failing)
    await forgetful.drain("worker-a")
    await failed.wait()
    await forgetful.drain("worker-a", undo=True)
    assert other.lanes[session_id].epoch > 1
    assert not (await forgetful.beat(other)).orphans
    await stack.redis.hset(SESSION.format(session_id), "offered_until_ms", 1)
    (orphan,) = (await forgetful.beat(other)).orphans
    assert orphan.epoch > 1
    monkeypatch.setattr(LaneStore, "move", store)
    other.lanes.clear()
    await forgetful.drain("worker-a")
    await eventually(lambda: is_on(forgetful, session_id, other))
    assert other.lanes[session_id].epoch > 1


async def test_a_session_that_is_resumed_never_meets_a_lane_of_a_failed_move(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    other = await stack.worker(client, "worker-b")
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    holder, free = (worker, other) if session_id in worker.lanes else (other, worker)
    await stack.redis.hset(SESSION.format(session_id), "offered_epoch", 2)
    free.lanes[session_id] = Lane(2, 4, 16, False, "", [3, 4])
    holder.stop_beating()
    await holder.vanish()
    assert generated(await client.generate(session_id, 5)) == expected(2, 7)
    assert free.lanes[session_id].epoch > 1
    assert free.lanes[session_id].token_ids[:2] == [1, 2]


# Whose history is not all in the journal


async def test_a_session_is_written_at_its_new_worker_before_it_leaves_the_old_one(
    stack: Stack, client: Client
) -> None:
    """Whose files may be gone with it; the new worker dies as soon as it has the session."""
    left = await stack.worker(client, files=SnapshotFiles("one"))
    session_id = await written_session(stack, client)
    files = SnapshotFiles("other")
    other = await stack.worker(client, "worker-b", files=files)
    other.writing.clear()
    await client.drain("worker-a")
    await holds(lambda: other.calls["WriteSnapshot"] == 1)
    assert (await client.info(session_id)).worker == "worker-a"
    told = list(left.lanes[session_id].token_ids)
    other.writing.set()
    await eventually(lambda: is_on(client, session_id, other))
    for worker in (left, other):
        worker.stop_beating()
        await worker.vanish()
    again = await stack.worker(client, "worker-b", files=files)
    await eventually(lambda: appended(client, session_id))
    assert again.lanes[session_id].token_ids == [*told, 1]


async def appended(client: Client, session_id: str) -> bool:
    """Once those that have died do not count any more."""
    try:
        return bool(await client.append(session_id, [1], expected_history_length=105))
    except (NoWorker, WorkerLost):
        return False


async def test_a_session_is_moved_although_it_cannot_be_written_there(stack: Stack, client: Client) -> None:
    await stack.worker(client, files=SnapshotFiles("one"))
    session_id = await written_session(stack, client)
    other = await stack.worker(client, "worker-b", files=SnapshotFiles("other"))
    other.failures["WriteSnapshot"] = [SnapshotStoreUnavailable("disk full")] * 2
    await client.drain("worker-a")
    await eventually(lambda: is_on(client, session_id, other))


async def test_what_was_written_of_a_session_that_does_not_move_after_all_is_removed(
    stack: Stack, client: Client
) -> None:
    await stack.worker(client, files=SnapshotFiles("one"))
    session_id = await written_session(stack, client)
    files = SnapshotFiles("other")
    other = await stack.worker(client, "worker-b", files=files)
    other.writing.clear()
    await client.drain("worker-a")
    await holds(lambda: other.calls["WriteSnapshot"] == 1)
    await client.append(session_id, [1])
    other.writing.set()
    await eventually(lambda: is_on(client, session_id, other))
    await holds(lambda: [name.rsplit("-", 1)[1] for name in files.contents] == ["106.safetensors"])
