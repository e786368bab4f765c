"""Workers die; the sessions that they held go on elsewhere, with every token that anybody has seen."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from kakeya_router.store.sessions.session_store import pack
from kakeya_router.workers.fleet import Fleet
from kakeya_shared.contract.features import ANSWER_STREAM
from kakeya_shared.errors.tree import (
    Draining,
    HistoryLengthMismatch,
    InvalidField,
    NoCapacity,
    NoWorker,
    OperationRunning,
    OperationStopped,
    SessionClosed,
    SessionNotFound,
    SnapshotStoreUnavailable,
    StoreUnavailable,
    TokenOutOfVocabulary,
    WorkerLost,
)
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.worker.v1 import registry_pb2
from tests.redis_server import RedisServer
from tests.unit.router.fake_worker import (
    BYTES_PER_TOKEN,
    LANE_BYTES,
    SINK,
    WINDOW,
    FakeWorker,
    SnapshotFiles,
)
from tests.unit.router.lapses import Waits, be_lost, die, expire
from tests.unit.router.stack import (
    FORGETFUL,
    Client,
    Stack,
    answer,
    eventually,
    has_snapshot,
    leave,
    stack_on,
    written_session,
)

KEPT = SINK + WINDOW
PLATEAU = KEPT * BYTES_PER_TOKEN


def expected(start: int, end: int) -> list[int]:
    """What a fake worker generates at these history indices."""
    return [100 + index % 800 for index in range(start, end)]


@pytest.fixture
def files() -> SnapshotFiles:
    return SnapshotFiles()


class Pair:
    """Two workers with one snapshot store."""

    def __init__(self, *workers: FakeWorker) -> None:
        self.workers = workers

    def of(self, session_id: str) -> FakeWorker:
        """The one that holds the session; where several do, the one with the latest lease."""
        holding = [worker for worker in self.workers if session_id in worker.lanes]
        return max(holding, key=lambda worker: worker.lanes[session_id].epoch)

    def other(self, worker: FakeWorker) -> FakeWorker:
        return next(each for each in self.workers if each is not worker)


@pytest.fixture(params=[True, False], ids=["by a stream", "by calls"])
async def pair(request: pytest.FixtureRequest, stack: Stack, client: Client, files: SnapshotFiles) -> Pair:
    """Whose answers come by either way."""
    asked: dict[str, Any] = {"num_lanes": 3, "files": files, "features": (ANSWER_STREAM,) if request.param else ()}
    return Pair(*[await stack.worker(client, name, **asked) for name in ("worker-a", "worker-b")])


async def drained(call: Any) -> list[api.GenerateResponse]:
    """The rest of a stream."""
    responses = []
    while (response := await call.read()) is not grpc.aio.EOF:
        responses.append(response)
    return responses


async def token_ids(call: Any) -> list[int]:
    return [response.token_id for response in await drained(call) if response.HasField("token_id")]


async def first_token(call: Any) -> int:
    while not (response := await call.read()).HasField("token_id"):
        continue
    return int(response.token_id)


async def of_state(client: Client, session_id: str, state: api.SessionState.ValueType) -> Any:
    info = await client.info(session_id)
    return info if info.state == state else None


async def is_parked(stack: Stack, session_id: str) -> bool:
    """Whether it is written down: it shows as parked from the first moment."""
    return bool(await stack.redis.hget(f"kakeya:{{tiny}}:session:{session_id}", "state") == "parked")


async def ledgers(client: Client) -> dict[str, tuple[int, int, int]]:
    return {
        name: (worker.reserved_bytes, worker.kv_live_bytes, worker.num_sessions)
        for name, worker in (await client.workers()).items()
    }


async def nothing_stored(stack: Stack) -> bool:
    return not await stack.session_keys()


# In the middle of a call


@pytest.mark.parametrize("history", [3, 40])
async def test_a_generate_goes_on_where_its_worker_died(stack: Stack, client: Client, pair: Pair, history: int) -> None:
    session_id = await client.session()
    await client.append(session_id, range(history))
    worker = pair.of(session_id)
    worker.pause_in = 5
    call = client.generating(session_id, 300)
    seen = [(await call.read()) for _ in range(5)]
    await die(worker)
    responses = [response for response in seen if response.HasField("token_id")] + await drained(call)
    *tokens, last = responses
    assert [response.token_id for response in tokens] == expected(history, history + 300)
    done = last.done
    assert (done.generated_token_count, done.history_length) == (300, history + 300)
    assert done.kv_live_bytes == PLATEAU
    assert done.evicted_token_count == history + 300 - 20 - max(0, history - 20)
    info = await client.info(session_id)
    assert (info.history_length, info.kv_live_bytes) == (history + 300, PLATEAU)
    assert info.epoch > 1
    assert info.worker == pair.other(worker).worker_id
    assert pair.other(worker).lanes[session_id].token_ids == [*range(history), *expected(history, history + 300)]
    assert (await client.append(session_id, [1])).history_length == history + 301
    await client.close(session_id)
    await eventually(lambda: nothing_stored(stack))
    assert (await ledgers(client))[info.worker] == (0, 0, 0)


async def test_an_append_goes_on_where_its_worker_died(client: Client, pair: Pair) -> None:
    session_id = await client.session()
    await client.append(session_id, range(10))
    worker = pair.of(session_id)
    worker.flowing.clear()
    appending = asyncio.create_task(client.append(session_id, range(10, 60), expected_history_length=10))
    await eventually(lambda: called(worker, "Append", 2))
    await die(worker)
    appended = await appending
    assert (appended.history_length, appended.kv_live_bytes) == (60, PLATEAU)
    assert (appended.evicted_token_count, [(p.start, p.end) for p in appended.retained]) == (40, [(0, 4), (44, 60)])
    assert pair.other(worker).lanes[session_id].token_ids == list(range(60))


async def called(worker: FakeWorker, method: str, times: int) -> bool:
    return worker.calls[method] >= times


async def test_a_worker_that_falls_silent_is_left_when_its_lease_lapses(client: Client, pair: Pair) -> None:
    """No connection breaks: a stopped process, or a host that is gone."""
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    worker = pair.of(session_id)
    worker.pause_in = 1
    call = client.generating(session_id, 200)
    await call.read()
    await worker.lapse()
    assert (await token_ids(call))[-1] == expected(201, 202)[0]
    other = pair.other(worker)
    assert len(other.lanes[session_id].token_ids) == 202
    assert other.lanes[session_id].epoch > 1


async def test_a_worker_that_shuts_down_hands_its_streams_over(client: Client, pair: Pair) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    worker = pair.of(session_id)
    worker.failures["Generate"] = [Draining("the worker is shutting down")]
    worker.failures["OpenSession"] = [Draining("the worker is shutting down")]
    assert await token_ids(client.generating(session_id, 5)) == expected(2, 7)
    assert pair.of(session_id) is pair.other(worker)


async def test_a_worker_that_gives_all_its_lanes_up_is_left(client: Client, pair: Pair) -> None:
    """It was stopped for so long that its lease has lapsed, and goes on before its calls are ended."""
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    worker = pair.of(session_id)
    worker.pause_in = 1
    call = client.generating(session_id, 300)
    await first_token(call)
    worker.lanes.pop(session_id).end = SessionClosed("the session was closed")
    assert (await token_ids(call))[-1] == expected(301, 302)[0]
    assert pair.of(session_id).lanes[session_id].epoch > 1


async def test_the_last_worker_restarts_and_has_its_sessions_again(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    """Without a snapshot store: the journal has all of it."""
    waiting = await stack.router(admission="queue", queue_seconds=600)
    session_id = await waiting.session()
    await waiting.append(session_id, range(30))
    worker.pause_in = 1
    call = waiting.generating(session_id, 100)
    first = await first_token(call)
    await die(worker)
    again = await stack.worker(client)
    assert [first, *await token_ids(call)] == expected(30, 130)
    assert again.lanes[session_id].token_ids == [*range(30), *expected(30, 130)]


async def test_a_call_whose_connection_breaks_goes_on_with_the_same_lane(client: Client, pair: Pair) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    worker = pair.of(session_id)
    worker.failures["Generate"] = [SessionNotFound("for once")]
    assert await token_ids(client.generating(session_id, 5)) == expected(2, 7)
    assert (worker.lanes[session_id].epoch, worker.calls["OpenSession"]) == (1, 1)


async def test_without_another_worker_the_session_waits_for_its_next_call(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    call = client.generating(session_id, 1_000_000)
    seen = (await call.read()).token_id
    await die(worker)
    with pytest.raises(NoWorker):
        await answer(drained(call))
    info = await eventually(lambda: of_state(client, session_id, api.SESSION_STATE_PARKED))
    assert info.history_length >= 3
    assert (info.kv_live_bytes, info.reserved_bytes, info.worker) == (0, 0, "")
    again = await stack.worker(client)
    assert await token_ids(client.generating(session_id, 3)) == expected(info.history_length, info.history_length + 3)
    assert again.lanes[session_id].token_ids[:3] == [1, 2, seen]


async def test_where_there_is_no_room_the_session_waits_for_its_next_call(
    stack: Stack, client: Client, files: SnapshotFiles
) -> None:
    first = await stack.worker(client, "worker-a", num_lanes=1, files=files)
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    second = await stack.worker(client, "worker-b", num_lanes=1, files=files)
    other = await client.session()
    await die(first)
    with pytest.raises((NoCapacity, NoWorker)):
        await client.append(session_id, [3])
    await client.close(other)
    appended = await eventually(lambda: retried(client, session_id))
    assert appended.history_length == 3
    assert second.lanes[session_id].token_ids == [1, 2, 3]


async def retried(client: Client, session_id: str) -> Any:
    try:
        return await client.append(session_id, [3], expected_history_length=2)
    except (NoCapacity, NoWorker):
        return None


async def test_a_session_goes_nowhere_where_the_bits_would_differ(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    other = await stack.worker(client, "worker-b", fingerprint="0" * 64, num_lanes=100)
    session_id = await client.session(fingerprint=worker.fingerprint)
    await client.append(session_id, [1])
    await be_lost(worker)
    await eventually(lambda: of_state(client, session_id, api.SESSION_STATE_PARKED))
    with pytest.raises(NoWorker, match="fingerprint"):
        await client.append(session_id, [2])
    assert session_id not in other.lanes


async def test_close_wins_over_a_session_that_looks_for_a_lane(
    stack: Stack, client: Client, worker: FakeWorker, waits: Waits
) -> None:
    waiting = await stack.router(admission="queue", queue_seconds=600)
    session_id = await waiting.session()
    await waiting.append(session_id, [1, 2])
    worker.pause_in = 1
    call = waiting.generating(session_id, 1_000)
    await call.read()
    await be_lost(worker)
    await eventually(lambda: of_state(client, session_id, api.SESSION_STATE_PARKED))
    assert await client.close(session_id) >= 3
    waits.end()
    with pytest.raises(SessionClosed):
        await answer(drained(call))
    assert await nothing_stored(stack)


async def test_a_client_that_leaves_while_a_lane_is_looked_for(stack: Stack, client: Client, pair: Pair) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    worker = pair.of(session_id)
    other = pair.other(worker)
    call = client.generating(session_id, 1_000_000)
    await call.read()
    other.flowing.clear()
    await die(worker)
    await eventually(lambda: called(other, "OpenSession", 1))
    await leave(call, "Generate")
    other.flowing.set()
    length = await eventually(lambda: at_rest(stack, client, session_id))
    assert length >= 3
    assert len(other.lanes[session_id].token_ids) == length
    assert (await client.append(session_id, [5])).history_length == length + 1


async def at_rest(stack: Stack, client: Client, session_id: str) -> int:
    if await stack.redis.exists(f"kakeya:{{tiny}}:op:{session_id}"):
        return 0
    return (await client.info(session_id)).history_length


# Between two calls


async def test_an_idle_session_is_parked_and_resumed_by_its_next_call(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles
) -> None:
    session_id = await client.session()
    await client.append(session_id, range(50))
    await client.generate(session_id, 10)
    await eventually(lambda: has_snapshot(stack, session_id, 60))
    worker = pair.of(session_id)
    await be_lost(worker)
    info = await eventually(lambda: of_state(client, session_id, api.SESSION_STATE_PARKED))
    assert (info.history_length, info.kv_live_bytes) == (60, 0)
    other = pair.other(worker)
    assert other.calls["OpenSession"] == 0
    appended = await client.append(session_id, [7])
    assert (appended.history_length, appended.kv_live_bytes) == (61, PLATEAU)
    assert other.lanes[session_id].token_ids == [*range(50), *expected(50, 60), 7]
    assert other.calls["Append"] == 1  # the snapshot had all of it


async def test_an_info_of_a_parked_session_does_not_resume_it(client: Client, pair: Pair) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    await be_lost(pair.of(session_id))
    await eventually(lambda: of_state(client, session_id, api.SESSION_STATE_PARKED))
    assert (await client.info(session_id)).state == api.SESSION_STATE_PARKED


async def test_a_parked_session_expires_after_a_time_of_its_own(stack: Stack) -> None:
    client = await stack.router(parked_ttl_seconds=5000, session_ttl_seconds=1000)
    worker = await stack.worker(client)
    session_id = await client.session(ttl_seconds=60)
    await client.append(session_id, [1])
    await be_lost(worker)
    await eventually(lambda: is_parked(stack, session_id))
    expires_at = await stack.redis.zscore("kakeya:{tiny}:expiry", session_id)
    seconds, _ = await stack.redis.time()
    assert 1000 * (seconds + 4000) < expires_at <= 1000 * (seconds + 5001)
    await expire(stack, session_id)
    await eventually(lambda: nothing_stored(stack))
    with pytest.raises(SessionNotFound):
        await client.info(session_id)


async def test_a_disposable_session_has_its_own_time(stack: Stack) -> None:
    client = await stack.router(parked_ttl_seconds=5000, session_ttl_seconds=1000)
    worker = await stack.worker(client)
    session_id = await client.session(ttl_seconds=60, disposable=True)
    await client.append(session_id, [1])
    await be_lost(worker)
    await eventually(lambda: is_parked(stack, session_id))
    expires_at = await stack.redis.zscore("kakeya:{tiny}:expiry", session_id)
    seconds, _ = await stack.redis.time()
    assert expires_at <= 1000 * (seconds + 61)


async def test_no_session_is_kept_for_less_than_it_asked_for(stack: Stack) -> None:
    client = await stack.router(parked_ttl_seconds=1)
    worker = await stack.worker(client)
    session_id = await client.session(ttl_seconds=1000)
    await client.append(session_id, [1])
    await be_lost(worker)
    await eventually(lambda: is_parked(stack, session_id))
    expires_at = await stack.redis.zscore("kakeya:{tiny}:expiry", session_id)
    seconds, _ = await stack.redis.time()
    assert expires_at > 1000 * (seconds + 900)


async def test_a_worker_that_cannot_read_a_sessions_snapshots_is_passed_over(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles
) -> None:
    session_id = await written_session(stack, client)
    for worker in pair.workers:
        await be_lost(worker)
    await stack.worker(client, "worker-c", num_lanes=9, files=SnapshotFiles("another store"))
    await eventually(lambda: cannot_be_read(client, session_id))
    assert (await client.info(session_id)).state == api.SESSION_STATE_PARKED
    able = await stack.worker(client, "worker-d", files=files)
    assert (await client.append(session_id, [1], expected_history_length=105)).history_length == 106
    assert session_id in able.lanes


async def test_a_worker_that_goes_while_it_is_tried_is_not_taken_for_a_full_one(
    stack: Stack, client: Client, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await written_session(stack, client)
    await client.park(session_id)
    silent, leaving = pair.workers
    await silent.vanish()
    some = Fleet.some

    async def before_it_leaves(*arguments: Any) -> Any:
        monkeypatch.setattr(Fleet, "some", some)
        listed = await some(*arguments)
        leaving.stop_beating()
        identity = {"pool": leaving.pool, "worker_id": leaving.worker_id, "incarnation": leaving.incarnation}
        await answer(client.registry.Leave(registry_pb2.LeaveRequest(**identity)))
        return listed

    monkeypatch.setattr(Fleet, "some", before_it_leaves)
    with pytest.raises(NoWorker, match="answers"):
        await client.append(session_id, [1])


async def cannot_be_read(client: Client, session_id: str) -> bool:
    """Once those that have died do not count any more."""
    try:
        await client.append(session_id, [1], expected_history_length=105)  # it may be in the history after the first
    except NoWorker as error:
        return "reads its snapshots" in error.message
    raise AssertionError("it was appended")


async def test_a_request_finds_the_session_that_was_parked_since(stack: Stack, client: Client, pair: Pair) -> None:
    session_id = await client.session(request_id="once")
    await client.append(session_id, [1])
    await be_lost(pair.of(session_id))
    await eventually(lambda: of_state(client, session_id, api.SESSION_STATE_PARKED))
    assert await client.session(request_id="once") == session_id


async def test_a_closed_session_leaves_no_file(stack: Stack, client: Client, pair: Pair, files: SnapshotFiles) -> None:
    session_ids = [await client.session() for _ in range(3)]
    for session_id in session_ids:
        for turn in range(4):
            await client.append(session_id, range(turn * 10 + 1))
            await client.generate(session_id, 3)
    await eventually(lambda: nonempty(files))
    for session_id in session_ids:
        await client.close(session_id)
    await eventually(lambda: empty(files))
    assert await nothing_stored(stack)


async def nonempty(files: SnapshotFiles) -> bool:
    return bool(files.contents)


async def empty(files: SnapshotFiles) -> bool:
    return not files.contents


# Snapshots and the journal


async def test_the_journal_keeps_what_the_second_newest_snapshot_lacks(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles
) -> None:
    session_id = await client.session()
    lengths = []
    for turn in range(6):
        await client.append(session_id, range(10))
        (*_, done) = await client.generate(session_id, 5)
        lengths.append(done.done.history_length)
        await eventually(lambda: has_snapshot(stack, session_id, lengths[-1]))
        record = await stack.redis.hgetall(f"kakeya:{{tiny}}:session:{session_id}")
        assert int(record["journal_length"]) == lengths[-1]
        assert int(record["journal_start"]) == (lengths[-2] if turn else 0)
        assert await stack.redis.strlen(f"kakeya:{{tiny}}:journal:{session_id}") == 4 * (
            lengths[-1] - int(record["journal_start"])
        )
    assert record["boundaries"] == ",".join(map(str, lengths[-4:]))
    # All that is kept serves one of the last four turns.
    assert {name.rsplit("-", 1)[1] for name in files.contents} >= {f"{length}.safetensors" for length in lengths[-4:]}
    assert len(files.contents) <= 7


async def test_a_long_generate_is_written_while_it_runs(stack: Stack, files: SnapshotFiles) -> None:
    client = await stack.router(recovery_seconds=0.5)
    worker = await stack.worker(client, files=files)
    worker.prefill_tokens_per_second = 100.0
    worker.incarnation += "-fast"
    await client.join(worker)
    session_id = await client.session()
    await client.append(session_id, [1])
    call = client.generating(session_id, 1_000_000)
    seen: list[int] = []
    async for response in call:
        seen.append(response.token_id)
        if len(files.contents) >= 2:
            break
    call.cancel()
    assert len(seen) >= 50


async def test_a_long_prefill_is_written_on_its_way(stack: Stack, files: SnapshotFiles) -> None:
    """Whoever has waited for it for long does not wait for all of it again."""
    client = await stack.router(recovery_seconds=0.5, operation_lease_seconds=1)  # it is considered at each renewal
    pair = Pair(*[await stack.worker(client, name, files=files) for name in ("worker-a", "worker-b")])
    for worker in pair.workers:
        worker.prefill_tokens_per_second = 100.0
        worker.incarnation += "-fast"
        await client.join(worker)
    session_id = await client.session()
    worker = pair.of(session_id)
    appending = asyncio.create_task(client.append(session_id, [7] * 2_000))
    while len(worker.lanes[session_id].token_ids) < 200 and not appending.done():
        await asyncio.sleep(0)
    worker.flowing.clear()
    await asyncio.sleep(0.01)  # the step that has begun
    done = len(worker.lanes[session_id].token_ids)
    assert done < 2_000
    await eventually(lambda: has_snapshot(stack, session_id, done))
    with capture_logs() as logs:
        await die(worker)
        assert (await appending).history_length == 2_000
    (resumed,) = [each for each in logs if each["event"] == "session resumed"]
    assert (resumed["restored_tokens"], resumed["journaled_tokens"]) == (done, 2_000 - done)


async def test_a_damaged_snapshot_costs_a_prefill_and_nothing_else(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles
) -> None:
    session_id = await written_session(stack, client)
    del files.contents[next(name for name in files.contents if name.endswith("-105.safetensors"))]
    worker = pair.of(session_id)
    told = list(worker.lanes[session_id].token_ids)
    await die(worker)
    assert (await client.append(session_id, [1])).history_length == 106
    assert pair.of(session_id).lanes[session_id].token_ids == [*told, 1]


async def test_a_store_that_fails_costs_nothing_while_the_workers_live(
    stack: Stack, client: Client, pair: Pair
) -> None:
    session_id = await client.session()
    worker = pair.of(session_id)
    worker.failures["WriteSnapshot"] = [SnapshotStoreUnavailable("disk full"), RuntimeError("a bug")]
    for length in (5, 10, 15):
        await client.append(session_id, [1, 2])
        await client.generate(session_id, 3)
        await eventually(lambda: called(worker, "WriteSnapshot", length // 5))  # noqa: B023  # awaited at once
    await eventually(lambda: has_snapshot(stack, session_id, 15))


async def test_a_store_that_fails_for_long_lets_no_journal_grow_for_ever(stack: Stack, files: SnapshotFiles) -> None:
    client = await stack.router(journal_tokens=20, max_append_tokens=8)
    worker = await stack.worker(client, files=files)
    session_id = await client.session()
    worker.failures["WriteSnapshot"] = [SnapshotStoreUnavailable("disk full")] * 1_000
    await client.append(session_id, range(8))
    assert len(await client.generate(session_id, 8)) == 9
    with pytest.raises(SnapshotStoreUnavailable) as refused:
        await client.append(session_id, range(5))
    assert refused.value.retry_after_seconds is not None
    assert len(await client.generate(session_id, 9)) == 10  # it was let in, and goes to its end
    with pytest.raises(SnapshotStoreUnavailable):
        await client.generate(session_id, 1)
    assert (await client.info(session_id)).history_length == 25
    worker.failures["WriteSnapshot"] = []
    await eventually(lambda: appended(client, session_id))
    record = await stack.redis.hgetall(f"kakeya:{{tiny}}:session:{session_id}")
    assert (record["journal_start"], record["journal_length"]) == ("0", "26")
    await die(worker)
    again = await stack.worker(client, "worker-b", files=files)
    assert (await eventually(lambda: appended(client, session_id))).history_length == 27
    assert again.lanes[session_id].token_ids[:8] == [*range(8)]


async def appended(client: Client, session_id: str) -> Any:
    """None while the session is refused one more token."""
    try:
        return await client.append(session_id, [1])
    except (SnapshotStoreUnavailable, NoWorker, NoCapacity):
        return None


async def test_without_a_store_the_journal_forgets_what_is_too_long_for_it(stack: Stack, worker: FakeWorker) -> None:
    client = await stack.router(**FORGETFUL)
    session_id = await client.session()
    for _ in range(3):
        await client.append(session_id, [1, 2])
    record = await stack.redis.hgetall(f"kakeya:{{tiny}}:session:{session_id}")
    assert (record["journal_start"], record["journal_length"]) == ("4", "6")
    await die(worker)
    with pytest.raises(WorkerLost):
        await client.append(session_id, [1])


async def test_nothing_is_shown_that_redis_does_not_take(own_redis: RedisServer) -> None:
    async with outage_stack(own_redis) as (client, worker):
        session_id = await client.session()
        await client.append(session_id, [1])
        call = client.generating(session_id, 1_000_000)
        await first_token(call)
        await asyncio.to_thread(own_redis.stop)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await drained(call)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        await asyncio.to_thread(own_redis.start)
        length = await eventually(lambda: free_length(client, session_id))
        assert len(worker.lanes[session_id].token_ids) == length


async def free_length(client: Client, session_id: str) -> int:
    try:
        return (await client.append(session_id, [])).history_length
    except (StoreUnavailable, OperationRunning):
        return 0


@asynccontextmanager
async def outage_stack(redis: RedisServer) -> AsyncIterator[tuple[Client, FakeWorker]]:
    async with stack_on(redis.url) as stack:
        client = await stack.router()
        yield client, await stack.worker(client)


async def test_the_ledger_is_right_after_a_worker_was_left(client: Client, pair: Pair) -> None:
    session_ids = [await client.session() for _ in range(2)]
    for session_id in session_ids:
        await client.append(session_id, range(30))
    first = pair.of(session_ids[0])
    await die(first)
    for session_id in session_ids:
        await client.append(session_id, [1])
    other = pair.other(first)
    assert (await ledgers(client))[other.worker_id] == (2 * LANE_BYTES, 2 * PLATEAU, 2)


# Clients go on with a Generate whose stream broke off


async def broken_off(client: Client, session_id: str, num_seen: int, max_tokens: int = 100) -> tuple[str, list[int]]:
    """The id of a Generate whose router is gone for its client, and the tokens that had arrived."""
    call = client.generating(session_id, max_tokens)
    op_id = dict(await call.initial_metadata())["kakeya-op-id"]
    seen = [await first_token(call) for _ in range(num_seen)]
    return op_id, seen


def resuming(client: Client, session_id: str, op_id: str, seen: list[int], max_tokens: int = 100, **fields: Any) -> Any:
    return client.generating(session_id, max_tokens, op_id=op_id, resume_token_ids=seen, **fields)


@pytest.mark.parametrize("num_seen", [0, 1, 30])
@pytest.mark.parametrize("worker_dies", [False, True])
async def test_another_router_goes_on_where_the_client_is(
    stack: Stack, client: Client, pair: Pair, num_seen: int, worker_dies: bool
) -> None:
    other_router = await stack.router()
    session_id = await client.session()
    await client.append(session_id, range(30))
    worker = pair.of(session_id)
    op_id, seen = await broken_off(client, session_id, num_seen)
    if worker_dies:
        await die(worker)
    responses = await answer(drained(resuming(other_router, session_id, op_id, seen, expected_history_length=30)))
    *tokens, last = [response for response in responses if not response.HasField("truncated")]
    assert seen + [response.token_id for response in tokens] == expected(30, 130)
    assert (last.done.op_id, last.done.generated_token_count, last.done.history_length) == (op_id, 100, 130)
    assert last.done.evicted_token_count == 100
    assert pair.of(session_id).lanes[session_id].token_ids == [*range(30), *expected(30, 130)]


@pytest.mark.parametrize("sink", [SINK, 0])
async def test_a_client_that_has_nothing_yet_is_told_what_was_forgotten(
    stack: Stack, client: Client, worker: FakeWorker, sink: int
) -> None:
    session_id = await client.session(sink=sink, window=KEPT - sink)
    await client.append(session_id, range(KEPT + 7))
    first, *_ = await client.generate(session_id, 50, op_id="mine")
    again = await answer(drained(resuming(client, session_id, "mine", [], 50)))
    assert again[0] == first
    assert first.truncated.dropped_token_count == 7
    assert [each.token_id for each in again[1:-1]] == expected(KEPT + 7, KEPT + 57)


async def test_the_end_of_a_generate_is_told_again(stack: Stack, client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    (*tokens, last) = await client.generate(session_id, 5)
    seen = [response.token_id for response in tokens]
    for num_seen in (5, 2, 0):
        again = await answer(
            drained(resuming(client, session_id, last.done.op_id, seen[:num_seen], 5, expected_history_length=1))
        )
        assert [response.token_id for response in again[:-1]] == seen[num_seen:]
        assert (again[-1].done.seed, again[-1].done.history_length) == (last.done.seed, 6)
    assert worker.lanes[session_id].token_ids == [1, *seen]


async def test_tokens_that_only_the_client_has_stand(stack: Stack, client: Client, pair: Pair) -> None:
    """The router that relayed them died before it wrote them down, and the worker with it."""
    session_id = await client.session()
    await client.append(session_id, range(30))
    op_id, _ = await broken_off(client, session_id, 1, 3)
    await eventually(lambda: at_rest(stack, client, session_id))
    journal = f"kakeya:{{tiny}}:journal:{session_id}"
    await stack.redis.hset(f"kakeya:{{tiny}}:session:{session_id}", mapping={"journal_length": 31, "snapshots": ""})
    await stack.redis.set(journal, pack([*range(30), *expected(30, 31)]))
    await die(pair.of(session_id))
    resumed = await answer(drained(resuming(client, session_id, op_id, expected(30, 33), 3)))
    assert [response.WhichOneof("payload") for response in resumed] == ["done"]
    assert pair.of(session_id).lanes[session_id].token_ids == [*range(30), *expected(30, 33)]


async def test_what_cannot_be_gone_on_with(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    (*_, last) = await client.generate(session_id, 5)
    op_id = last.done.op_id
    for error, fields in (
        (InvalidField, {"op_id": op_id, "resume_token_ids": [1, 2]}),
        (InvalidField, {"op_id": op_id, "resume_token_ids": [1] * 6}),
        (InvalidField, {"op_id": "", "resume_token_ids": [1]}),
        (TokenOutOfVocabulary, {"op_id": op_id, "resume_token_ids": [5_000]}),
        (HistoryLengthMismatch, {"op_id": op_id, "expected_history_length": 2}),
        (HistoryLengthMismatch, {"op_id": "another", "resume_token_ids": [1]}),
    ):
        with pytest.raises(error):
            await client.generate(session_id, 5, **fields)
    await client.append(session_id, [2])
    with pytest.raises(HistoryLengthMismatch):
        await client.generate(session_id, 5, op_id=op_id, resume_token_ids=expected(1, 2))
    assert worker.lanes[session_id].token_ids == [1, *expected(1, 6), 2]


async def test_a_generate_that_is_sent_twice_takes_place_once(stack: Stack, client: Client, worker: FakeWorker) -> None:
    """The answer to the first attempt was lost, or the attempt itself: its client cannot know."""
    other_router = await stack.router()
    session_id = await client.session()
    await client.append(session_id, [1])
    for router in (client, other_router, client):
        (*tokens, last) = await router.generate(session_id, 5, op_id="mine", expected_history_length=1)
        assert [response.token_id for response in tokens] == expected(1, 6)
        assert last.done.op_id == "mine"
    worker.pause_in = 1
    call = client.generating(session_id, 5_000, op_id="next", expected_history_length=6)
    await first_token(call)
    again = asyncio.create_task(other_router.generate(session_id, 5_000, op_id="next", expected_history_length=6))
    await eventually(lambda: called(worker, "Stop", 1))
    worker.flowing.set()
    assert [response.token_id for response in await again if response.HasField("token_id")] == expected(6, 5_006)
    with pytest.raises(OperationStopped):
        await answer(drained(call))


# Files that nobody needs


async def test_a_worker_is_told_which_files_no_session_needs(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles
) -> None:
    session_id = await client.session()
    await client.append(session_id, range(30))
    await client.generate(session_id, 3)
    await eventually(lambda: has_snapshot(stack, session_id, 33))
    (needed,) = files.contents
    stem = needed.removesuffix("-33.safetensors")
    orphans = [
        f"{stem}-34.safetensors",  # of a session that there is
        "tiny/tiny.gone-1-0-0123abcd-9.safetensors",
        f"{needed}.0123456789abcdef.part",
    ]
    strangers = [
        "other/other.x-1-0-0123abcd-9.safetensors",
        "tiny/notes.txt",
        "tiny/nonsense-1-0-0123abcd-9.safetensors",
    ]
    worker = pair.workers[0]
    request = registry_pb2.SweepSnapshotsRequest(
        pool="tiny",
        worker_id=worker.worker_id,
        incarnation=worker.incarnation,
        names=[needed, *orphans, *strangers],
    )
    assert sorted((await answer(client.registry.SweepSnapshots(request))).orphans) == sorted(orphans)
    request.names.extend(["x"] * 1024)
    with pytest.raises(InvalidField):
        await answer(client.registry.SweepSnapshots(request))
