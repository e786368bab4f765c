"""What goes wrong while a session gets its lane back, or while it is written down for that."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
import structlog

from kakeya_router.contract import refusals
from kakeya_router.operations.operation import Running
from kakeya_router.snapshots import snapshot_files as snapshot_files_module
from kakeya_router.snapshots.snapshotting import Snapshotting
from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.outcomes import ResumeSession
from kakeya_router.store.session_record import Claim, Incarnation, SessionId, SessionRecord, State, WorkerId
from kakeya_router.store.sessions.lane_store import LaneStore
from kakeya_router.store.sessions.session_store import Answer
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.workers.fleet import Fleet
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_shared.errors.tree import (
    HistoryFull,
    Internal,
    InvalidField,
    InvariantViolated,
    KakeyaError,
    NoWorker,
    OperationStopped,
    SessionClosed,
    SessionNotFound,
    StoreUnavailable,
    WorkerLost,
)
from kakeya_shared.process.detached_tasks import DetachedTasks
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.redis_server import RedisServer
from tests.unit.router.admission_stores import fleet_on
from tests.unit.router.fake_worker import FakeWorker, Lane, SnapshotFiles
from tests.unit.router.lapses import be_lost, die
from tests.unit.router.session_stores import SessionStores
from tests.unit.router.stack import (
    FORGETFUL,
    Client,
    Stack,
    answer,
    begin_ahead,
    eventually,
    stack_on,
    written_session,
)

SESSION = "kakeya:{{tiny}}:session:{}"
A_BUG = RuntimeError("a bug")


def expected(start: int, end: int) -> list[int]:
    """What a fake worker generates at these history indices."""
    return [100 + index % 800 for index in range(start, end)]


@pytest.fixture
def files() -> SnapshotFiles:
    return SnapshotFiles()


@pytest.fixture
async def pair(stack: Stack, client: Client, files: SnapshotFiles) -> list[FakeWorker]:
    return [await stack.worker(client, name, num_lanes=3, files=files) for name in ("worker-a", "worker-b")]


def holder(workers: list[FakeWorker], session_id: str) -> tuple[FakeWorker, FakeWorker]:
    """The worker with the session's lane, and one without."""
    (holding,) = (worker for worker in workers if session_id in worker.lanes)
    return holding, next(worker for worker in workers if worker is not holding)


async def called(worker: FakeWorker, method: str, times: int = 1) -> bool:
    return worker.calls[method] >= times


async def of_state(client: Client, session_id: str, state: api.SessionState.ValueType) -> Any:
    info = await client.info(session_id)
    return info if info.state == state else None


async def at_rest(stack: Stack, session_id: str) -> bool:
    return not await stack.redis.exists(f"kakeya:{{tiny}}:op:{session_id}")


async def unfinished(client: Client, session_id: str, worker: FakeWorker, token_ids: list[int]) -> None:
    """Appends what the worker does not come to prefill."""
    worker.failures["Append"] = [A_BUG]
    with pytest.raises(Internal):
        await client.append(session_id, token_ids)
    assert not worker.failures["Append"]


def reading(call: Any) -> "asyncio.Task[list[int]]":
    """The tokens of a Generate, read while the test goes on."""

    async def read() -> list[int]:
        return [response.token_id async for response in call if response.HasField("token_id")]

    return asyncio.create_task(answer(read()))


# The lane is there still


async def test_what_a_worker_had_generated_and_nobody_had_seen_is_shown(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    worker.flowing.clear()
    tokens = reading(client.generating(session_id, 20))
    await eventually(lambda: called(worker, "Generate"))
    lane = worker.lanes[session_id]
    lane.token_ids += expected(2, 6)  # on their way when the connection broke
    lane.end = SessionNotFound("the connection is broken")
    worker.flowing.set()
    assert await tokens == expected(2, 22)
    assert [list(request.previous_token_ids) for request in worker.generating] == [[], expected(2, 6)]
    assert (lane.token_ids, lane.epoch) == ([1, 2, *expected(2, 22)], 1)
    assert (await client.info(session_id)).history_length == 22


async def test_a_worker_that_dies_while_it_makes_up_for_an_append_is_left(
    client: Client, pair: list[FakeWorker]
) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    worker, other = holder(pair, session_id)
    await unfinished(client, session_id, worker, [3, 4])
    worker.flowing.clear()
    appending = asyncio.create_task(client.append(session_id, [5]))
    await eventually(lambda: called(worker, "Append", 3))
    await die(worker)
    assert (await appending).history_length == 5
    assert other.lanes[session_id].token_ids == [1, 2, 3, 4, 5]


async def test_what_cannot_be_made_up_for_now_is_so_later(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    await unfinished(client, session_id, worker, [3, 4])
    await unfinished(client, session_id, worker, [5])
    assert (await client.append(session_id, [6])).history_length == 5
    assert worker.lanes[session_id].token_ids == [1, 2, 3, 4, 6]


async def test_a_lane_that_is_found_and_breaks_again_is_left(client: Client, pair: list[FakeWorker]) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    worker, other = holder(pair, session_id)
    worker.failures["Append"] = [SessionNotFound("once"), SessionNotFound("twice")]
    assert (await client.append(session_id, [3])).history_length == 3
    assert other.lanes[session_id].token_ids == [1, 2, 3]
    assert other.lanes[session_id].epoch > 1
    await eventually(lambda: called(worker, "CloseSession"))
    assert session_id not in worker.lanes


async def test_a_lane_that_is_found_and_fails_is_not_left(client: Client, pair: list[FakeWorker]) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    worker, other = holder(pair, session_id)
    worker.failures["Append"] = [SessionNotFound("once"), A_BUG]
    with pytest.raises(Internal):
        await client.append(session_id, [3])
    assert (await client.append(session_id, [4])).history_length == 4
    assert worker.lanes[session_id].token_ids == [1, 2, 3, 4]
    assert other.calls["OpenSession"] == 0


async def test_a_lane_that_is_found_in_disorder_fails_the_session(client: Client, pair: list[FakeWorker]) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    worker, other = holder(pair, session_id)
    worker.failures["Generate"] = [SessionNotFound("for once")]
    worker.failures["Stop"] = [InvariantViolated("too many bytes", metadata={"invariant": "inv1"})]
    with pytest.raises(InvariantViolated):
        await client.generate(session_id)
    info = await client.info(session_id)
    assert (info.state, info.cache_invariant_inv1_violations) == (api.SESSION_STATE_FAILED, 1)
    assert other.calls["OpenSession"] == 0


async def test_a_lane_with_tokens_that_its_worker_does_not_tell_is_left(client: Client, pair: list[FakeWorker]) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    worker, other = holder(pair, session_id)
    worker.forgets_generated = True
    worker.flowing.clear()
    tokens = reading(client.generating(session_id, 20))
    await eventually(lambda: called(worker, "Generate"))
    worker.lanes[session_id].token_ids += [9, 9, 9]
    worker.lanes[session_id].end = SessionNotFound("the connection is broken")
    worker.flowing.set()
    assert await tokens == expected(2, 22)
    assert other.lanes[session_id].token_ids == [1, 2, *expected(2, 22)]


async def test_a_session_whose_lane_has_tokens_that_nobody_knows_is_built_anew(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    worker.forgets_generated = True
    worker.flowing.clear()
    call = client.generating(session_id, 20)
    await eventually(lambda: called(worker, "Generate"))
    worker.lanes[session_id].token_ids += [9, 9, 9]
    call.cancel()
    info = await eventually(lambda: of_state(client, session_id, api.SESSION_STATE_PARKED))
    assert (info.history_length, info.kv_live_bytes) == (2, 0)
    worker.flowing.set()
    assert (await client.append(session_id, [3])).history_length == 3
    assert worker.lanes[session_id].token_ids == [1, 2, 3]
    assert worker.lanes[session_id].epoch > 1


# The history


async def test_an_append_that_turns_out_not_to_fit_is_taken_back(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session(on_overflow=api.OVERFLOW_POLICY_REFUSE)
    await client.append(session_id, range(10))
    await unfinished(client, session_id, worker, [5] * 30)
    assert (await client.append(session_id, [1, 2])).history_length == 12
    assert worker.lanes[session_id].token_ids == [*range(10), 1, 2]
    assert (await client.info(session_id)).history_length == 12


async def test_a_generate_whose_begin_is_forgotten_cannot_be_gone_on_with(stack: Stack, worker: FakeWorker) -> None:
    client = await stack.router(**FORGETFUL)
    session_id = await client.session()
    await client.append(session_id, [1])
    (*_, last) = await client.generate(session_id, 200)
    with pytest.raises(OperationStopped, match="journal"):
        await client.generate(session_id, 200, op_id=last.done.op_id)
    assert (await client.append(session_id, [2])).history_length == 202


# Looking for another lane


@pytest.mark.parametrize("outcome", ["full", "away"])
async def test_a_worker_whose_seat_is_taken_meanwhile_is_passed_over(
    stack: Stack, client: Client, pair: list[FakeWorker], monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    third = await stack.worker(client, "worker-c", num_lanes=3)
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    workers = [*pair, third]
    worker, _ = holder(workers, session_id)
    resume = LaneStore.resume
    replies: list[tuple[str, str]] = []

    async def raced(
        store: LaneStore, record: SessionRecord, claim: Claim, candidate: WorkerRecord, waiter_id: str
    ) -> Answer[ResumeSession]:
        """Somebody is faster with the first."""
        if not replies:
            taken = {"reserved_bytes": candidate.slab_bytes} if outcome == "full" else {"incarnation": "a newer one"}
            await stack.redis.hset(f"kakeya:{{tiny}}:worker:{candidate.worker_id}", mapping=taken)
        reply = await resume(store, record, claim, candidate, waiter_id)
        replies.append((candidate.worker_id, reply.outcome))
        return reply

    monkeypatch.setattr(LaneStore, "resume", raced)
    await die(worker)
    assert (await client.append(session_id, [3])).history_length == 3
    (passed_over, first), (taken, second) = replies
    assert (first, second) == (outcome, "resumed")
    calls = {each.worker_id: each.calls["OpenSession"] for each in workers if each is not worker}
    assert calls == {passed_over: 0, taken: 1}


async def test_workers_that_have_all_left_since_they_were_listed_are_not_full(
    stack: Stack, client: Client, pair: list[FakeWorker], files: SnapshotFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await written_session(stack, client)
    worker, _ = holder(pair, session_id)
    await stack.worker(client, "worker-c", files=SnapshotFiles("another store"))
    resume = LaneStore.resume

    async def late(store: LaneStore, *args: Any) -> Answer[ResumeSession]:
        """They have started anew meanwhile, without the store that they had."""
        anew = {"incarnation": "a newer one", "snapshot_store": "another store"}
        for each in pair:
            await stack.redis.hset(f"kakeya:{{tiny}}:worker:{each.worker_id}", mapping=anew)
        return await resume(store, *args)

    monkeypatch.setattr(LaneStore, "resume", late)
    await die(worker)
    with pytest.raises(NoWorker, match="reads its snapshots"):  # but who does may come back
        await client.append(session_id, [1])


async def test_a_session_whose_snapshots_the_journal_does_not_reach_back_to_is_lost(
    stack: Stack, client: Client, pair: list[FakeWorker]
) -> None:
    session_id = await written_session(stack, client)
    worker, _ = holder(pair, session_id)
    await stack.redis.hset(f"kakeya:{{tiny}}:session:{session_id}", "snapshots", '[["tiny/name",0,9,1]]')
    await die(worker)
    with pytest.raises(WorkerLost):
        await client.append(session_id, [1])


async def test_a_session_whose_snapshots_are_all_gone_is_lost(
    stack: Stack, client: Client, pair: list[FakeWorker], files: SnapshotFiles
) -> None:
    session_id = await written_session(stack, client)
    worker, other = holder(pair, session_id)
    await die(worker)
    files.contents.clear()
    with pytest.raises(WorkerLost):
        await client.append(session_id, [1])
    status = (await client.workers())[other.worker_id]
    assert (status.reserved_bytes, status.num_sessions) == (0, 0)
    assert session_id not in other.lanes


async def test_a_session_of_which_a_worker_restores_too_little_is_lost(
    stack: Stack, client: Client, pair: list[FakeWorker], files: SnapshotFiles
) -> None:
    session_id = await written_session(stack, client)
    worker, other = holder(pair, session_id)
    await die(worker)
    for name, (sink, window, refuses, _, _) in files.contents.items():
        files.contents[name] = (sink, window, refuses, 0, [])
    with pytest.raises(WorkerLost, match="damaged or gone"):
        await client.append(session_id, [1])
    assert (other.calls["Append"], session_id in other.lanes) == (0, False)


@pytest.mark.parametrize(
    ("failure", "error"), [(A_BUG, NoWorker), (InvalidField("no such pin", metadata={"field": "pin"}), InvalidField)]
)
async def test_where_no_worker_resumes_a_session_it_waits_for_its_next_call(
    client: Client, pair: list[FakeWorker], failure: Exception, error: type[Exception]
) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    worker, other = holder(pair, session_id)
    await be_lost(worker)
    await eventually(lambda: of_state(client, session_id, api.SESSION_STATE_PARKED))
    other.failures["OpenSession"] = [failure]
    with pytest.raises(error):
        await client.append(session_id, [3])
    assert (await client.append(session_id, [3], expected_history_length=2)).history_length == 3
    assert other.lanes[session_id].token_ids == [1, 2, 3]


# Workers


async def test_a_look_at_the_workers_that_fails_is_not_the_last(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[frozenset[str]] = []

    def see(_: Running, incarnations: frozenset[str]) -> None:
        seen.append(incarnations)
        if len(seen) == 1:
            raise A_BUG

    async def seen_often() -> bool:
        return len(seen) >= 3

    monkeypatch.setattr(Running, "see_workers", see)
    with structlog.testing.capture_logs() as lines:
        await stack.router()
        await eventually(seen_often)
    assert [line["event"] for line in lines if line["log_level"] == "error"] == [
        "looking at the workers has failed and goes on"
    ]


@pytest.mark.parametrize("speed", [-1.0, float("nan"), float("inf"), 1e300])
async def test_a_speed_that_makes_no_sense_is_refused(client: Client, worker: FakeWorker, speed: float) -> None:
    worker.prefill_tokens_per_second = speed
    with pytest.raises(InvalidField) as raised:
        await client.join(worker)
    assert raised.value.metadata["field"] == "prefill_tokens_per_second"


# Snapshots


@dataclass
class Desk:
    """What a router writes snapshots with, and a session of five tokens, of which no router writes one."""

    stack: Stack
    snapshotting: Snapshotting
    store: SessionStores
    fleet: Fleet
    tasks: DetachedTasks
    session_id: str
    worker: FakeWorker

    @property
    def seen(self) -> WorkerRecord:
        worker = self.fleet.worker(Incarnation(self.worker.incarnation))
        assert worker is not None
        return worker

    async def record(self) -> SessionRecord:
        record = await self.store.get(SessionId(self.session_id))
        assert record is not None
        return record

    async def change(self, **fields: str | int) -> None:
        await self.stack.redis.hset(SESSION.format(self.session_id), mapping=fields)

    async def snapshots(self) -> str:
        return (await self.record()).snapshots


@asynccontextmanager
async def desk_on(stack: Stack, url: str, files: SnapshotFiles) -> AsyncIterator[Desk]:
    client = await stack.router(worker_lease_seconds=60)
    worker = await stack.worker(client, files=files)
    session_id = await client.session()
    await client.append(session_id, [1, 2, 3, 4, 5])
    redis, workers, tasks = RedisConnection(url), WorkerClients(), DetachedTasks()
    store = SessionStores(redis, "desk")
    fleet = fleet_on(redis, tasks)
    snapshotting = Snapshotting(store, workers, fleet, tasks, turns=1, recovery_seconds=1, journal_tokens=1_000)
    yield Desk(stack, snapshotting, store, fleet, tasks, session_id, worker)
    await tasks.drain(1)
    await workers.aclose()
    await redis.aclose()


@pytest.fixture
async def desk(stack: Stack, redis_url: str, files: SnapshotFiles) -> AsyncIterator[Desk]:
    async with desk_on(stack, redis_url, files) as desk:
        await desk.fleet.look()
        yield desk


async def test_what_is_in_the_store_is_not_written_again(desk: Desk, files: SnapshotFiles) -> None:
    assert await desk.snapshotting.write_now(await desk.record(), desk.seen)
    assert await desk.snapshotting.write_now(await desk.record(), desk.seen)
    assert desk.worker.calls["WriteSnapshot"] == 1
    assert [contents[-1] for contents in files.contents.values()] == [[1, 2, 3, 4, 5]]
    assert next(iter(files.contents)) in await desk.snapshots()


@pytest.mark.parametrize("closes", [True, False])
async def test_nothing_more_is_written_of_a_session_that_has_left_meanwhile(desk: Desk, *, closes: bool) -> None:
    await desk.change(boundaries="5")
    record = await desk.record()
    desk.worker.writing.clear()
    desk.snapshotting.consider(record, record.journal_length, is_turn=True)
    await eventually(lambda: called(desk.worker, "WriteSnapshot"))
    completing = asyncio.create_task(desk.snapshotting.write_rest(record, desk.seen))
    await asyncio.sleep(0)  # it waits now
    if closes:
        await desk.stack.redis.delete(SESSION.format(desk.session_id))
    else:
        await desk.change(epoch=record.epoch + 1)
    desk.worker.writing.set()
    assert not await completing
    assert desk.worker.calls["WriteSnapshot"] == 1


async def test_files_that_later_ones_replace_are_removed(desk: Desk, files: SnapshotFiles) -> None:
    lane = desk.worker.lanes[desk.session_id]
    for length, has in ((5, {5}), (6, {5, 6}), (30, {5, 6, 30}), (31, {30, 31})):
        lane.token_ids += range(len(lane.token_ids), length)
        await desk.change(journal_length=length)
        assert await desk.snapshotting.write_now(await desk.record(), desk.seen)
        assert {name.rsplit("-", 1)[1] for name in files.contents} == {f"{each}.safetensors" for each in has}
    kept = await desk.snapshots()
    assert [name in kept for name in files.contents] == [True, True]


NEWER = json.dumps([["newer", 0, 100, 1]])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(None, id="closed"),
        pytest.param({"state": "closing"}, id="being closed"),
        pytest.param({"epoch": 2}, id="on another lane"),
        pytest.param({"snapshots": NEWER, "snapshot_store": "store", "journal_length": 100}, id="written further"),
    ],
)
async def test_a_snapshot_that_is_not_wanted_any_more_is_removed(
    desk: Desk, files: SnapshotFiles, change: dict[str, str | int] | None
) -> None:
    record = await desk.record()
    if change is None:
        await desk.stack.redis.delete(SESSION.format(desk.session_id))
    else:
        await desk.change(**change)
    before = await desk.stack.redis.hget(SESSION.format(desk.session_id), "snapshots")
    assert not await desk.snapshotting.write_now(record, desk.seen)
    assert (desk.worker.calls["WriteSnapshot"], files.contents) == (1, {})
    assert await desk.stack.redis.hget(SESSION.format(desk.session_id), "snapshots") == before


async def test_a_snapshot_that_follows_a_removed_one_is_removed(desk: Desk, files: SnapshotFiles) -> None:
    assert await desk.snapshotting.write_now(await desk.record(), desk.seen)
    (first,) = files.contents
    desk.worker.lanes[desk.session_id].token_ids.append(6)
    await desk.change(journal_length=6)
    record = await desk.record()
    await desk.change(snapshots="")
    assert not await desk.snapshotting.write_now(record, desk.seen)
    assert list(files.contents) == [first]
    assert await desk.snapshots() == ""


async def test_a_snapshot_that_stays_beyond_the_journal_is_removed(
    desk: Desk, files: SnapshotFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_files_module, "_AHEAD_SECONDS", 0.0)
    desk.worker.lanes[desk.session_id].token_ids.append(6)
    await begin_ahead(desk.stack, desk.session_id)
    assert not await desk.snapshotting.write_now(await desk.record(), desk.seen)
    assert (files.contents, await desk.snapshots()) == ({}, "")


async def test_a_snapshot_beyond_the_journal_waits_for_it(desk: Desk, files: SnapshotFiles) -> None:
    desk.worker.lanes[desk.session_id].token_ids.append(6)
    await begin_ahead(desk.stack, desk.session_id)
    writing = asyncio.create_task(desk.snapshotting.write_now(await desk.record(), desk.seen))
    await eventually(lambda: called(desk.worker, "WriteSnapshot"))
    await asyncio.sleep(0.1)
    assert (writing.done(), await desk.snapshots()) == (False, "")
    await desk.change(journal_length=6)
    assert await writing
    assert ",6," in await desk.snapshots()
    assert len(files.contents) == 1


async def test_a_snapshot_that_the_journal_never_reaches_is_removed(
    desk: Desk, files: SnapshotFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_files_module, "_NUM_ATTEMPTS", 2)
    desk.worker.lanes[desk.session_id].token_ids.append(6)
    assert not await desk.snapshotting.write_now(await desk.record(), desk.seen)
    assert (await desk.snapshots(), files.contents) == ("", {})


async def test_files_that_one_worker_does_not_remove_are_removed_by_another(desk: Desk, files: SnapshotFiles) -> None:
    assert await desk.snapshotting.write_now(await desk.record(), desk.seen)
    async with FakeWorker("worker-b", files=files) as other:
        desk.worker.failures["DeleteSnapshots"] = [A_BUG]
        workers = [desk.seen, replace(desk.seen, worker_id=WorkerId("worker-b"), address=other.address), desk.seen]
        await desk.snapshotting.delete(list(files.contents), workers)
        assert files.contents == {}
        assert (desk.worker.calls["DeleteSnapshots"], other.calls["DeleteSnapshots"]) == (1, 1)


@pytest.mark.parametrize("has_looked", [False, True])
async def test_redis_may_be_away_when_a_snapshot_is_due(
    own_redis: RedisServer, files: SnapshotFiles, *, has_looked: bool
) -> None:
    async with stack_on(own_redis.url) as stack, desk_on(stack, own_redis.url, files) as desk:
        await desk.change(boundaries="5")
        record = await desk.record()
        if has_looked:
            await desk.fleet.look()
        await asyncio.to_thread(own_redis.stop)
        desk.snapshotting.consider(record, 5, is_turn=True)
        await asyncio.sleep(0.1)
        await asyncio.to_thread(own_redis.start)
        await eventually(lambda: there(desk))
        await eventually(lambda: is_written(desk))
        assert len(files.contents) == 1


async def there(desk: Desk) -> bool:
    try:
        return bool(await desk.record())
    except StoreUnavailable:
        return False


async def is_written(desk: Desk) -> bool:
    return ",5," in await desk.snapshots()


# What does not fit a session that refuses to forget


async def test_an_append_whose_call_broke_off_is_refused_as_a_whole(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session(on_overflow=api.OVERFLOW_POLICY_REFUSE)
    await client.append(session_id, range(10))
    worker.failures["Append"] = [SessionNotFound("for once")]
    with pytest.raises(HistoryFull):
        await client.append(session_id, [5] * 30)
    assert (await client.info(session_id)).history_length == 10
    assert (await client.append(session_id, [5] * 10)).history_length == 20
    assert worker.lanes[session_id].token_ids == [*range(10), *[5] * 10]


async def test_a_generate_begins_where_what_did_not_fit_was_taken_back(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session(on_overflow=api.OVERFLOW_POLICY_REFUSE)
    await client.append(session_id, range(10))
    worker.failures["Append"] = [A_BUG]
    with pytest.raises(Internal):
        await client.append(session_id, [5] * 30)
    for _ in range(2):
        responses = await client.generate(session_id, 3, op_id="mine", expected_history_length=10)
        assert [response.token_id for response in responses[:-1]] == [110, 111, 112]
    assert (await client.info(session_id)).history_length == 13


async def test_a_long_generate_is_written_now_and_then(stack: Stack, files: SnapshotFiles) -> None:
    """Of 1,000 tokens at 256 a time; not with each group that is journaled after the first time."""
    client = await stack.router()
    worker = await stack.worker(client, files=files)
    session_id = await client.session()
    await client.append(session_id, [1])
    step = worker._step

    async def slow(lane: Lane) -> None:
        await asyncio.sleep(0.001)
        await step(lane)

    worker._step = slow  # type: ignore[method-assign]  # so that some writes come while it runs
    await client.generate(session_id, 1_000)
    assert 1 <= worker.calls["WriteSnapshot"] <= 5


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (None, SessionClosed),
        (State.CLOSING, SessionClosed),
        (State.LOST, WorkerLost),
        (State.FAILED, InvariantViolated),
        (State.OPEN, OperationStopped),
    ],
)
async def test_who_has_lost_an_operation_is_told_what_became_of_the_session(
    desk: Desk, state: State | None, error: type[KakeyaError]
) -> None:
    record = None if state is None else replace(await desk.record(), state=state)
    assert isinstance(refusals.overtaken(record), error)
