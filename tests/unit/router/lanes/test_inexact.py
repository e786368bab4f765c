"""Sessions that may go on under another fingerprint of their model: `inexact_resume`."""

import asyncio
from typing import Any

import pytest

from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.session_record import Incarnation, SessionRecord
from kakeya_shared.errors.tree import NoWorker, QueueTimedOut, SnapshotRefused
from kakeya_shared.process.detached_tasks import DetachedTasks
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.admission_stores import fleet_on
from tests.unit.router.fake_worker import BYTES_PER_TOKEN, FINGERPRINT, LANE_BYTES, FakeWorker, SnapshotFiles
from tests.unit.router.lanes.test_moving import is_on
from tests.unit.router.lanes.test_parking import expected, generated, is_parked, lean_on_the_store, ledger, turns
from tests.unit.router.lanes.test_queue import QUEUE, stand
from tests.unit.router.lapses import Waits, be_lost, die
from tests.unit.router.stack import FORGETFUL, LONG_SECONDS, Client, Stack, answer, eventually

OTHER = "0" * 64
INEXACT: dict[str, Any] = {"inexact_resume": True, "fingerprint": FINGERPRINT}


@pytest.fixture
def files() -> SnapshotFiles:
    return SnapshotFiles()


@pytest.fixture
async def worker(stack: Stack, client: Client, files: SnapshotFiles) -> FakeWorker:
    return await stack.worker(client, files=files)


async def lose(client: Client, worker: FakeWorker, *session_ids: str) -> None:
    """The worker dies, and its lease lapses."""
    await be_lost(worker)
    for session_id in session_ids:
        await eventually(lambda: is_parked(client, session_id))  # noqa: B023  # awaited at once


async def standing(client: Client, session_id: str) -> tuple[str, str, bool]:
    info = await client.info(session_id)
    assert info.inexact_resume
    return info.worker, info.fingerprint, info.exact


async def test_it_goes_there_and_back_and_is_not_exact_any_more(
    stack: Stack, client: Client, worker: FakeWorker, files: SnapshotFiles
) -> None:
    session_id = await client.session(**INEXACT)
    assert await standing(client, session_id) == ("worker-a", FINGERPRINT, True)
    length = await lean_on_the_store(stack, client, session_id)
    foreign = await stack.worker(client, "worker-b", files=files, fingerprint=OTHER)
    await lose(client, worker, session_id)
    assert await standing(client, session_id) == ("", FINGERPRINT, True), "nothing was computed elsewhere yet"
    assert generated(await client.generate(session_id, 5)) == expected(length, length + 5)
    assert await standing(client, session_id) == ("worker-b", OTHER, False)
    assert (await client.info(session_id)).kv_live_bytes == (length + 5) * BYTES_PER_TOKEN
    await stack.worker(client, "worker-c", files=files)
    await client.park(session_id)
    await die(foreign)
    assert generated(await client.generate(session_id, 5)) == expected(length + 5, length + 10)
    assert await standing(client, session_id) == ("worker-c", FINGERPRINT, False)


async def test_workers_of_its_fingerprint_come_first(
    stack: Stack, client: Client, worker: FakeWorker, files: SnapshotFiles
) -> None:
    session_id = await client.session(**INEXACT)
    await lean_on_the_store(stack, client, session_id)
    await stack.worker(client, "worker-b", num_lanes=100, files=files, fingerprint=OTHER)
    await stack.worker(client, "worker-c", num_lanes=1, files=files)
    await lose(client, worker, session_id)
    await client.generate(session_id, 1)
    assert await standing(client, session_id) == ("worker-c", FINGERPRINT, True)


@pytest.mark.parametrize("model_digest", ["1" * 64, ""], ids=["another", "unknown"])
async def test_another_model_does_not_go_on_with_it(
    stack: Stack, client: Client, worker: FakeWorker, files: SnapshotFiles, model_digest: str
) -> None:
    session_id = await client.session(**INEXACT)
    await lean_on_the_store(stack, client, session_id)
    other = await stack.worker(client, "worker-b", files=files, fingerprint=OTHER, model_digest=model_digest)
    await lose(client, worker, session_id)
    with pytest.raises(NoWorker, match="fingerprint, or the same model under another"):
        await client.generate(session_id, 1)
    assert not other.opening


async def test_nobody_knows_a_model_without_a_digest_again(stack: Stack, client: Client) -> None:
    worker = await stack.worker(client, model_digest="")
    session_id = await client.session(**INEXACT)
    await client.append(session_id, [1])
    await stack.worker(client, "worker-b", fingerprint=OTHER, model_digest="")
    await lose(client, worker, session_id)
    with pytest.raises(NoWorker, match="fingerprint"):
        await client.append(session_id, [2])


async def test_an_answer_goes_on_with_the_tokens_that_it_has(stack: Stack, client: Client) -> None:
    worker = await stack.worker(client)
    session_id = await client.session(**INEXACT)
    await client.append(session_id, [1, 2])
    worker.pause_in = 5
    call = client.generating(session_id, 2_000)
    responses = aiter(call)
    seen = [(await anext(responses)).token_id for _ in range(5)]
    foreign = await stack.worker(client, "worker-b", fingerprint=OTHER)
    await die(worker)
    seen += [response.token_id async for response in responses if response.HasField("token_id")]
    assert seen == expected(2, 2_002)
    (request,) = foreign.generating
    assert len(request.previous_token_ids) >= 5
    assert list(request.previous_token_ids) == expected(2, 2 + len(request.previous_token_ids))
    assert await standing(client, session_id) == ("worker-b", OTHER, False)


async def test_what_a_foreign_worker_does_not_take_is_neither_lost_nor_inexact(
    stack: Stack, client: Client, worker: FakeWorker, files: SnapshotFiles
) -> None:
    session_id = await client.session(**INEXACT)
    length = await lean_on_the_store(stack, client, session_id)
    foreign = await stack.worker(client, "worker-b", files=files, fingerprint=OTHER)
    foreign.failures["OpenSession"] = [SnapshotRefused("not here")] * 1000
    await lose(client, worker, session_id)
    with pytest.raises(NoWorker):
        await client.generate(session_id, 1)
    assert foreign.calls["OpenSession"]
    assert await standing(client, session_id) == ("", FINGERPRINT, True)
    await stack.worker(client, "worker-c", files=files)
    assert generated(await client.generate(session_id, 2)) == expected(length, length + 2)
    assert await standing(client, session_id) == ("worker-c", FINGERPRINT, True)


async def test_a_foreign_worker_that_does_not_read_its_snapshots_is_no_reason_to_lose_it(
    stack: Stack, client: Client, worker: FakeWorker, files: SnapshotFiles
) -> None:
    session_id = await client.session(**INEXACT)
    length = await lean_on_the_store(stack, client, session_id)
    await stack.worker(client, "worker-b", files=SnapshotFiles("another"), fingerprint=OTHER)
    await lose(client, worker, session_id)
    with pytest.raises(NoWorker):
        await client.generate(session_id, 1)
    await stack.worker(client, "worker-c", files=files)
    assert generated(await client.generate(session_id, 2)) == expected(length, length + 2)


async def test_a_foreign_lane_that_is_too_small_is_no_fault_of_the_client(stack: Stack, client: Client) -> None:
    worker = await stack.worker(client)
    session_id = await client.session(**INEXACT)
    await client.append(session_id, range(10))
    await stack.worker(client, "worker-b", window=8, fingerprint=OTHER)
    await lose(client, worker, session_id)
    with pytest.raises(NoWorker):
        await client.append(session_id, [10])
    assert await standing(client, session_id) == ("", FINGERPRINT, True)


async def test_who_reads_its_snapshots_may_be_of_another_fingerprint(stack: Stack, client: Client) -> None:
    files = SnapshotFiles()
    worker = await stack.worker(client, files=files)
    await stack.worker(client, "worker-b", files=files, fingerprint=OTHER)
    free, bound = await client.session(**INEXACT), await client.session(fingerprint=FINGERPRINT)
    records = []
    for session_id in (free, bound):
        await lean_on_the_store(stack, client, session_id)
        records.append(SessionRecord.from_hash(await stack.redis.hgetall(f"kakeya:{{tiny}}:session:{session_id}")))
    await be_lost(worker)
    redis = RedisConnection(stack.url)
    fleet = fleet_on(redis, DetachedTasks())
    try:
        async with asyncio.timeout(LONG_SECONDS):
            await fleet.look()
            while fleet.worker(Incarnation(worker.incarnation)) is not None:
                await asyncio.sleep(0.05)
                await fleet.look()
    finally:
        await redis.aclose()
    assert [bool(fleet.readable(record).snapshots) for record in records] == [True, False]


async def test_it_is_moved_where_only_its_lane_has_its_history(stack: Stack) -> None:
    forgetful = await stack.router(**FORGETFUL)
    left = await stack.worker(forgetful, "worker-a")
    moved, kept = await forgetful.session(**INEXACT), await forgetful.session(fingerprint=FINGERPRINT)
    for session_id in (moved, kept):
        await turns(forgetful, session_id, 2)
    foreign = await stack.worker(forgetful, "worker-b", fingerprint=OTHER)
    await forgetful.drain("worker-a")
    await eventually(lambda: is_on(forgetful, moved, foreign))
    assert await standing(forgetful, moved) == ("worker-b", OTHER, False)
    assert generated(await forgetful.generate(moved, 5)) == expected(10, 15)
    await asyncio.sleep(0.3)
    assert set(left.lanes) == {kept}, "to be given away on another fingerprint it would have to allow"
    assert await ledger(forgetful, "worker-b") == (LANE_BYTES, 15 * BYTES_PER_TOKEN, 1)


async def test_a_fork_is_what_its_source_is(stack: Stack, client: Client) -> None:
    worker = await stack.worker(client)
    source = await client.session(**INEXACT)
    await client.append(source, range(8))
    point = api.ForkPoint(session_id=source)
    on_its_worker = await client.create(fork_from=point)
    assert (on_its_worker.exact, on_its_worker.fingerprint) == (True, FINGERPRINT)
    assert (await client.info(on_its_worker.session_id)).inexact_resume
    foreign = await stack.worker(client, "worker-b", num_lanes=100, fingerprint=OTHER)
    earlier = await client.create(fork_from=api.ForkPoint(session_id=source, boundary=3))
    assert (earlier.exact, earlier.fingerprint) == (True, FINGERPRINT), "its own fingerprint comes first"
    await lose(client, worker, source)
    elsewhere = await client.create(fork_from=api.ForkPoint(session_id=source, boundary=3))
    assert (elsewhere.exact, elsewhere.fingerprint) == (False, OTHER)
    assert foreign.lanes[elsewhere.session_id].token_ids == [0, 1, 2]
    with pytest.raises(NoWorker, match="fingerprint"):
        await client.create(fork_from=api.ForkPoint(session_id=source, boundary=3), fingerprint=FINGERPRINT)
    await client.append(source, [8])  # gone on under another fingerprint
    again = await client.create(fork_from=point)
    assert (again.exact, again.fingerprint) == (False, OTHER)


async def test_a_fork_may_allow_what_its_source_does_not(stack: Stack, client: Client) -> None:
    await stack.worker(client)
    source = await client.session()
    await client.append(source, [1])
    request = api.ForkSessionRequest(source=api.ForkPoint(session_id=source), inexact_resume=True)
    fork = (await answer(client.runtime.ForkSession(request))).session.session_id
    assert (await client.info(fork)).inexact_resume
    assert not (await client.info(source)).inexact_resume


async def test_in_the_line_it_takes_the_turn_at_any_worker_of_its_model(stack: Stack, waits: Waits) -> None:
    patient = await stack.router(**QUEUE)
    worker = await stack.worker(patient)
    free, bound = await patient.session(**INEXACT), await patient.session(fingerprint=FINGERPRINT)
    for session_id in (free, bound):
        await patient.append(session_id, [1, 2])
        await patient.park(session_id)
    await stack.worker(patient, "worker-b", num_lanes=1, fingerprint=OTHER)
    held = await patient.session(fingerprint=OTHER)
    for _ in range(worker.num_lanes):
        await patient.session(fingerprint=FINGERPRINT)
    calls = [asyncio.create_task(patient.append(session_id, [3])) for session_id in (bound, free)]
    await stand(stack, 2)
    assert not any(call.done() for call in calls)
    await patient.close(held)
    assert (await calls[1]).history_length == 3
    assert await standing(patient, free) == ("worker-b", OTHER, False)
    waits.end()
    with pytest.raises(QueueTimedOut):
        await calls[0]


async def test_a_fork_in_the_line_takes_such_a_turn_too(stack: Stack) -> None:
    patient = await stack.router(**QUEUE)
    worker = await stack.worker(patient, num_lanes=1)
    source = await patient.session(**INEXACT)
    await patient.append(source, range(8))
    foreign = await stack.worker(patient, "worker-b", num_lanes=1, fingerprint=OTHER)
    held = await patient.session(fingerprint=OTHER)
    call = asyncio.create_task(patient.create(fork_from=api.ForkPoint(session_id=source, boundary=3)))
    await stand(stack, 1)
    assert not call.done()
    await patient.close(held)
    fork = await call
    assert (fork.exact, fork.fingerprint, fork.history_length) == (False, OTHER, 3)
    assert fork.session_id in foreign.lanes
    assert set(worker.lanes) == {source}
