"""Several routers serve the same sessions; what one leaves behind another takes over."""

import asyncio
import hashlib
import struct

import pytest

from kakeya_shared.errors.tree import HistoryLengthMismatch, OperationRunning, OperationStopped, WorkerLost
from tests.unit.router.fake_worker import BYTES_PER_TOKEN, FakeWorker
from tests.unit.router.lapses import Clock
from tests.unit.router.stack import FORGETFUL, Client, Stack, eventually

OPERATION = "kakeya:{{tiny}}:op:{}"


@pytest.fixture
async def session_id(client: Client, worker: FakeWorker) -> str:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    return session_id


async def _leave_behind(stack: Stack, session_id: str, lease_until_ms: int = 1, **fields: str) -> None:
    """What a router leaves in Redis that died in the middle of an operation."""
    record = {"claim": "theirs", "op_id": "theirs", "kind": "append", "router": "dead", "start_length": "2"}
    record |= {"lease_until_ms": str(lease_until_ms)} | fields
    await stack.redis.hset(OPERATION.format(session_id), mapping=record)


async def test_routers_share_all_sessions(stack: Stack, client: Client, session_id: str) -> None:
    other_router = await stack.router()
    assert (await other_router.append(session_id, [3], expected_history_length=2)).history_length == 3
    assert (await client.generate(session_id, 2))[-1].done.history_length == 5
    assert await other_router.close(session_id) == 5


async def test_a_lapsed_operation_is_taken_over_with_what_the_worker_committed(
    stack: Stack, client: Client, worker: FakeWorker, session_id: str
) -> None:
    worker.lanes[session_id].token_ids += [3, 4]
    await _leave_behind(stack, session_id)
    appended = await eventually(lambda: _append(client, session_id, [5]))
    assert (appended.history_length, appended.kv_live_bytes) == (5, 5 * BYTES_PER_TOKEN)
    assert worker.calls["Stop"] == 1
    assert worker.lanes[session_id].token_ids == [1, 2, 3, 4, 5]


async def _append(client: Client, session_id: str, token_ids: list[int]) -> object:
    try:
        return await client.append(session_id, token_ids)
    except OperationRunning:
        return None


@pytest.mark.parametrize("method", ["append", "generate"])
async def test_what_a_router_sends_late_changes_nothing(
    stack: Stack, client: Client, worker: FakeWorker, session_id: str, method: str
) -> None:
    other_router, arrives = await stack.router(), asyncio.Event()
    worker.late.append(arrives)
    late = asyncio.ensure_future(
        client.append(session_id, [3, 4]) if method == "append" else client.generate(session_id, 5)
    )
    await eventually(lambda: called(worker, method.capitalize(), 2 if method == "append" else 1))
    history = [1, 2, 3, 4, 5] if method == "append" else [1, 2, 5]

    async def taken_over() -> object:
        await stack.redis.hset(
            OPERATION.format(session_id), "lease_until_ms", "1"
        )  # its router does not get to renew it
        return await _append(other_router, session_id, [5])

    assert (await eventually(taken_over)).history_length == len(history)
    arrives.set()
    with pytest.raises(OperationStopped):
        await late
    assert worker.lanes[session_id].token_ids == history
    assert (await client.append(session_id, [6], expected_history_length=len(history))).history_length == len(
        history
    ) + 1
    assert worker.calls["CloseSession"] == 0


async def called(worker: FakeWorker, method: str, times: int) -> bool:
    return worker.calls[method] >= times


async def test_an_operation_whose_lease_runs_is_left_alone(
    stack: Stack, client: Client, worker: FakeWorker, session_id: str
) -> None:
    await _leave_behind(stack, session_id, lease_until_ms=2**50)
    with pytest.raises(OperationRunning):
        await client.append(session_id, [3])
    assert worker.calls["Stop"] == 0


async def test_soon_after_an_outage_a_lapsed_lease_still_counts(
    stack: Stack, worker: FakeWorker, session_id: str, clock: Clock
) -> None:
    fresh_router = await stack.router()
    await _leave_behind(stack, session_id)
    with pytest.raises(OperationRunning):
        await fresh_router.append(session_id, [3])
    clock.now += 1
    assert (await fresh_router.append(session_id, [3])).history_length == 3


async def test_an_append_that_another_router_left_complete_is_recognized(
    stack: Stack, client: Client, worker: FakeWorker, session_id: str
) -> None:
    worker.lanes[session_id].token_ids += [3, 4]
    await _leave_behind(
        stack, session_id, append_end="4", append_digest=hashlib.sha256(struct.pack("<2I", 3, 4)).hexdigest()
    )

    async def repeat() -> object:
        try:
            return await client.append(session_id, [3, 4], expected_history_length=2)
        except OperationRunning:
            return None

    repeated = await eventually(repeat)
    assert repeated.history_length == 4
    assert worker.lanes[session_id].token_ids == [1, 2, 3, 4]
    with pytest.raises(HistoryLengthMismatch):
        await client.append(session_id, [3, 5], expected_history_length=2)


async def test_a_takeover_from_a_dead_worker_loses_a_session_that_nobody_can_restore(
    stack: Stack, worker: FakeWorker
) -> None:
    client = await stack.router(**FORGETFUL)
    session_id = await client.session()
    for token_ids in ([1, 2], [3]):
        await client.append(session_id, token_ids)
    await _leave_behind(stack, session_id)
    await worker.vanish()

    async def lost() -> bool:
        try:
            await client.append(session_id, [3])
        except WorkerLost:
            return True
        except OperationRunning:
            return False
        raise AssertionError

    await eventually(lost)
    assert not await stack.redis.exists(OPERATION.format(session_id))
