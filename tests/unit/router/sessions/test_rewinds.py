"""RewindSession: the last tokens of a history are taken back as if they had never been."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from kakeya_router.operations.operation import Operation
from kakeya_router.sessions.rewinding import Rewinding
from kakeya_router.store.session_record import LaneState
from kakeya_router.store.sessions import stored_snapshots
from kakeya_router.store.sessions.operation_store import OperationStore
from kakeya_router.workers.fleet import Fleet
from kakeya_router.workers.worker_client import WorkerClient
from kakeya_shared.errors.tree import (
    BoundaryNotReachable,
    HistoryLengthMismatch,
    Internal,
    NoWorker,
    OperationRunning,
    OperationStopped,
    SessionNotFound,
    SnapshotStoreUnavailable,
)
from kakeya_stubs.worker.v1 import verifier_pb2 as worker_api
from tests.unit.router.fake_worker import BYTES_PER_TOKEN, LANE_BYTES, SINK, WINDOW, FakeWorker, SnapshotFiles
from tests.unit.router.lapses import die
from tests.unit.router.operations.test_recovery import Pair, expected, files, free_length, ledgers, pair
from tests.unit.router.operations.test_takeover import OPERATION
from tests.unit.router.stack import FORGETFUL, Client, Stack, eventually, has_snapshot, unknown_id

__all__ = ["files", "pair"]  # fixtures


async def turn(stack: Stack, client: Client, session_id: str, num_tokens: int, max_tokens: int) -> int:
    """One turn, and its snapshot; the history length at its end."""
    await client.append(session_id, range(num_tokens))
    (*_, done) = await client.generate(session_id, max_tokens)
    length = int(done.done.history_length)
    await eventually(lambda: has_snapshot(stack, session_id, length))
    return length


async def record_of(stack: Stack, session_id: str) -> dict[str, str]:
    record: dict[str, str] = await stack.redis.hgetall(f"kakeya:{{tiny}}:session:{session_id}")
    return record


async def only_up_to(files: SnapshotFiles, length: int) -> bool:
    return all(int(name.rsplit("-", 1)[1].split(".")[0]) <= length for name in files.contents)


async def test_a_lane_that_has_forgotten_nothing_goes_back_itself(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, range(6))
    first = await client.generate(session_id, 5)
    for target in (8, 6):
        rewound = await client.rewind(session_id, target)
        assert (rewound.history_length, rewound.kv_live_bytes) == (target, target * BYTES_PER_TOKEN)
        assert [(part.start, part.end) for part in rewound.retained] == [(0, target)]
        info = await client.info(session_id)
        assert (info.history_length, info.kv_live_bytes) == (target, target * BYTES_PER_TOKEN)
        assert (await ledgers(client))["worker-a"] == (LANE_BYTES, target * BYTES_PER_TOKEN, 1)
    assert (await client.rewind(session_id, 6, expected_history_length=11)).history_length == 6  # it is there already
    assert (worker.calls["Rewind"], worker.calls["OpenSession"]) == (2, 1)
    again = await client.generate(session_id, 5)
    assert [each.token_id for each in again] == [each.token_id for each in first]
    assert (await client.rewind(session_id, 0)).history_length == 0
    assert worker.lanes[session_id].token_ids == []
    assert (await client.append(session_id, [7], expected_history_length=0)).history_length == 1


@pytest.mark.parametrize("back", [1, 2, 3])
@pytest.mark.parametrize("is_parked", [False, True])
async def test_what_was_forgotten_is_had_from_a_snapshot(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles, back: int, is_parked: bool
) -> None:
    session_id = await client.session()
    lengths = [await turn(stack, client, session_id, 9 + number, WINDOW) for number in range(6)]
    history = list(pair.of(session_id).lanes[session_id].token_ids)
    if is_parked:
        await die(pair.of(session_id))
    target = lengths[-1 - back]
    rewound = await client.rewind(session_id, target, expected_history_length=lengths[-1])
    assert (rewound.history_length, rewound.kv_live_bytes) == (target, (SINK + WINDOW) * BYTES_PER_TOKEN)
    assert pair.of(session_id).lanes[session_id].token_ids == history[:target]
    assert (await record_of(stack, session_id))["boundaries"] == ",".join(map(str, lengths[-4 : len(lengths) - back]))
    await eventually(lambda: only_up_to(files, target))
    tokens = [each.token_id for each in await client.generate(session_id, 5) if each.HasField("token_id")]
    assert tokens == expected(target, target + 5)
    assert pair.of(session_id).lanes[session_id].token_ids == [*history[:target], *tokens]


async def test_a_place_between_two_turns_is_had_from_the_journal(stack: Stack, client: Client, pair: Pair) -> None:
    session_id = await client.session()
    lengths = [await turn(stack, client, session_id, 30, 5) for _ in range(3)]
    history = list(pair.of(session_id).lanes[session_id].token_ids)
    target = lengths[-1] - 7
    assert (await client.rewind(session_id, target)).history_length == target
    assert pair.of(session_id).lanes[session_id].token_ids == history[:target]


async def test_where_each_answer_is_taken_back_the_place_before_it_is_written(
    stack: Stack, client: Client, pair: Pair
) -> None:
    """Else the whole history would be prefilled anew each time: no turn's end lasts."""
    session_id = await client.session()
    for _ in range(4):
        start = (await client.append(session_id, range(WINDOW))).history_length
        await client.generate(session_id, 5)
        assert (await client.rewind(session_id, start)).history_length == start
        await eventually(partial(has_snapshot, stack, session_id, start))


async def test_a_place_that_cannot_be_had_changes_nothing(stack: Stack, client: Client, pair: Pair) -> None:
    session_id = await client.session()
    lengths = [await turn(stack, client, session_id, 30, 5) for _ in range(6)]
    history = list(pair.of(session_id).lanes[session_id].token_ids)
    for target in (lengths[1], lengths[-4] + 1, lengths[-1] + 1, 2**63):
        with pytest.raises(BoundaryNotReachable) as refused:
            await client.rewind(session_id, target)
        reachable = [*lengths[-4:-1], lengths[-1] - 5, lengths[-1]]  # the last answer's start, too
        assert refused.value.metadata == {"reachable": ",".join(map(str, reachable))}
    with pytest.raises(HistoryLengthMismatch):
        await client.rewind(session_id, lengths[-2], expected_history_length=lengths[-1] - 1)
    with pytest.raises(SessionNotFound):
        await client.rewind(unknown_id(session_id), 1)
    assert (await client.append(session_id, [1])).history_length == lengths[-1] + 1
    assert pair.of(session_id).lanes[session_id].token_ids == [*history, 1]
    assert await has_snapshot(stack, session_id, lengths[-4])


async def test_where_the_last_answer_began_is_kept_while_the_turn_is_written(
    stack: Stack, client: Client, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is a snapshot in the middle of the answer; that of its end comes when the rewind has begun."""
    session_id = await client.session()
    start = await turn(stack, client, session_id, 20, WINDOW) + 20
    await client.append(session_id, range(20))
    holder = pair.of(session_id)
    holder.pause_in = 4
    call = client.generating(session_id, 300, op_id="answer")
    for _ in range(4):
        await call.read()
    call.cancel()
    await eventually(lambda: has_snapshot(stack, session_id, len(holder.lanes[session_id].token_ids)))
    begun = holder.lanes[session_id].token_ids[start:]
    holder.flowing.set()
    holder.writing.clear()
    await client.generate(session_id, len(begun) + 5, op_id="answer", resume_token_ids=begun)
    history = list(holder.lanes[session_id].token_ids)
    taken_back = Rewinding._taken_back

    async def late(self: Rewinding, operation: Operation, length: int) -> LaneState:
        holder.writing.set()
        await eventually(lambda: has_snapshot(stack, session_id, len(history)))
        return await taken_back(self, operation, length)

    monkeypatch.setattr(Rewinding, "_taken_back", late)
    assert (await client.rewind(session_id, start)).history_length == start
    assert pair.of(session_id).lanes[session_id].token_ids == history[:start]


async def test_a_busy_session_is_not_taken_back(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    worker.flowing.clear()
    call = client.generating(session_id, 3)
    await call.initial_metadata()
    with pytest.raises(OperationRunning):
        await client.rewind(session_id, 1)
    call.cancel()


@pytest.mark.parametrize("store_fails", [False, True])
async def test_a_place_that_only_the_lane_has_is_written_before_it_counts(
    stack: Stack, client: Client, pair: Pair, store_fails: bool
) -> None:
    session_id = await client.session()
    for _ in range(3):
        length = await turn(stack, client, session_id, 4, 2)
    worker = pair.of(session_id)
    history = list(worker.lanes[session_id].token_ids)
    if store_fails:
        worker.failures["WriteSnapshot"] = [SnapshotStoreUnavailable("disk full")]
        with pytest.raises(SnapshotStoreUnavailable):
            await client.rewind(session_id, 3)
        target = length
    else:
        target = (await client.rewind(session_id, 3)).history_length
        assert (worker.calls["Rewind"], target) == (1, 3)
        assert await has_snapshot(stack, session_id, 3)
    await die(worker)
    assert (await client.append(session_id, [9])).history_length == target + 1
    assert pair.of(session_id).lanes[session_id].token_ids == [*history[:target], 9]


async def test_a_worker_that_goes_with_a_place_that_only_its_lane_has(
    stack: Stack, client: Client, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await client.session()
    for _ in range(3):
        length = await turn(stack, client, session_id, 4, 2)
    worker, rewind = pair.of(session_id), WorkerClient.rewind
    history = list(worker.lanes[session_id].token_ids)

    with monkeypatch.context() as meanwhile:

        async def the_last_of_it(*args: Any) -> Any:
            lane = await rewind(*args)
            meanwhile.setattr(Fleet, "worker", lambda *_: None)
            return lane

        meanwhile.setattr(WorkerClient, "rewind", the_last_of_it)
        with pytest.raises(NoWorker):
            await client.rewind(session_id, 3)
    assert worker.calls["Rewind"] == 1
    await die(worker)
    assert (await client.append(session_id, [9])).history_length == length + 1
    assert pair.of(session_id).lanes[session_id].token_ids == [*history, 9]


async def test_without_a_store_a_lane_goes_back_to_what_its_journal_has_forgotten(
    stack: Stack, worker: FakeWorker
) -> None:
    client = await stack.router(**FORGETFUL)
    session_id = await client.session()
    for _ in range(3):
        await client.append(session_id, [1, 2])
    assert (await client.rewind(session_id, 3)).history_length == 3
    assert (await client.append(session_id, [5])).history_length == 4
    assert worker.lanes[session_id].token_ids == [1, 2, 1, 5]


async def test_a_worker_that_does_not_answer(stack: Stack, client: Client, pair: Pair) -> None:
    session_id = await client.session()
    length = await turn(stack, client, session_id, 4, 2)
    worker = pair.of(session_id)
    worker.failures["Rewind"] = [Internal("a bug")]
    with pytest.raises(NoWorker):
        await client.rewind(session_id, 3)
    assert (await client.rewind(session_id, 3, expected_history_length=length)).history_length == 3


async def test_a_rewind_whose_router_died_before_it_counted_did_not_take_place(
    stack: Stack, client: Client, pair: Pair
) -> None:
    session_id = await client.session()
    length = await turn(stack, client, session_id, 4, 2)
    lane = pair.of(session_id).lanes[session_id]
    history = list(lane.token_ids)
    del lane.token_ids[3:]
    left: dict[str, Any] = {"claim": "theirs", "op_id": "theirs", "kind": "rewind", "router": "dead"}
    left |= {"start_length": str(length), "lease_until_ms": "1"}
    await stack.redis.hset(OPERATION.format(session_id), mapping=left)
    appended = await eventually(lambda: appended_now(client, session_id))
    assert appended.history_length == length + 1
    assert pair.of(session_id).lanes[session_id].token_ids == [*history, 9]
    assert (await client.info(session_id)).cache_invariant_inv2_violations == 0


async def appended_now(client: Client, session_id: str) -> Any:
    try:
        return await client.append(session_id, [9])
    except OperationRunning:
        return None


class MeddledWorker(FakeWorker):
    """Something happens to the session just before its lane goes back."""

    meddle: Callable[[str], Awaitable[Any]]

    async def Rewind(self, request: worker_api.RewindRequest, context: object) -> worker_api.RewindResponse:
        await self.meddle(request.session_id)
        return await super().Rewind(request, context)


@pytest.fixture
async def meddled(client: Client) -> AsyncIterator[MeddledWorker]:
    async with MeddledWorker() as worker:
        await client.join(worker)
        worker.keep_beating(client.registry)
        yield worker


async def test_the_list_of_snapshots_may_change_meanwhile(stack: Stack, client: Client, meddled: MeddledWorker) -> None:
    async def write(session_id: str) -> None:
        listed = f'[["tiny/{session_id}-1-0-00000000-5.safetensors",0,5,500]]'
        mapping = {"snapshots": listed, "snapshot_store": "store"}
        await stack.redis.hset(f"kakeya:{{tiny}}:session:{session_id}", mapping=mapping)

    meddled.meddle = write
    session_id = await client.session()
    await client.append(session_id, range(6))
    assert (await client.rewind(session_id, 4)).history_length == 4
    assert (await record_of(stack, session_id))["snapshots"] == ""


async def test_a_session_that_is_taken_over_meanwhile_is_let_alone(
    stack: Stack, client: Client, meddled: MeddledWorker
) -> None:
    async def take(session_id: str) -> None:
        await stack.redis.hset(OPERATION.format(session_id), mapping={"claim": "theirs", "lease_until_ms": "1"})

    meddled.meddle = take
    session_id = await client.session()
    await client.append(session_id, range(6))
    with pytest.raises(OperationStopped):
        await client.rewind(session_id, 4)
    assert (await record_of(stack, session_id))["journal_length"] == "6"
    assert (await eventually(lambda: appended_now(client, session_id))).history_length == 7


async def test_a_lane_that_cannot_go_back_after_all_is_given_up(stack: Stack, client: Client, pair: Pair) -> None:
    session_id = await client.session()
    await turn(stack, client, session_id, 6, 5)
    pair.of(session_id).failures["Rewind"] = [BoundaryNotReachable("not in this lane")]
    assert (await client.rewind(session_id, 8)).history_length == 8
    assert pair.of(session_id).lanes[session_id].token_ids == [*range(6), *expected(6, 8)]


async def asked_again(stack: Stack, files: SnapshotFiles) -> tuple[Client, FakeWorker, str, int]:
    """A session in its second turn, of which each 50 tokens are written, and the length at which its answer begins."""
    client = await stack.router(recovery_seconds=0.5)
    worker = await stack.worker(client, files=files)
    worker.prefill_tokens_per_second = 100.0
    worker.incarnation += "-fast"
    await client.join(worker)
    session_id = await client.session()
    await turn(stack, client, session_id, 30, 5)
    return client, worker, session_id, (await client.append(session_id, range(7))).history_length


async def test_an_answer_can_be_taken_back_after_an_operation_that_changed_nothing(
    stack: Stack, files: SnapshotFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although a snapshot was kept while that ran, which was the latest then."""
    client, worker, session_id, question = await asked_again(stack, files)
    call = client.generating(session_id, 1_000_000)
    async for _ in call:
        if len(stored_snapshots.parse((await record_of(stack, session_id))["snapshots"])) > 1:
            break
    worker.writing.clear()  # the one that comes with the turn's end
    call.cancel()
    length = await eventually(lambda: free_length(client, session_id))
    holding, lets_go = asyncio.Event(), asyncio.Event()
    release = OperationStore.release_operation

    async def late(*arguments: Any) -> Any:
        holding.set()
        await lets_go.wait()
        return await release(*arguments)

    monkeypatch.setattr(OperationStore, "release_operation", late)
    nothing = asyncio.create_task(client.append(session_id, []))
    await holding.wait()
    worker.writing.set()
    await eventually(lambda: has_snapshot(stack, session_id, length))
    lets_go.set()
    await nothing
    assert (await client.rewind(session_id, question)).history_length == question


async def test_an_answer_can_be_taken_back_however_long_it_was(stack: Stack, files: SnapshotFiles) -> None:
    """Although snapshots of its middle have made the journal of its beginning superfluous for everything else."""
    client, worker, session_id, question = await asked_again(stack, files)
    call = client.generating(session_id, 1_000_000)
    async for _ in call:
        if worker.calls["WriteSnapshot"] > 3:
            break
    call.cancel()
    length = await eventually(lambda: free_length(client, session_id))
    await eventually(lambda: has_snapshot(stack, session_id, length))
    history = list(worker.lanes[session_id].token_ids)
    assert (await client.rewind(session_id, question)).history_length == question
    assert worker.lanes[session_id].token_ids == history[:question]
