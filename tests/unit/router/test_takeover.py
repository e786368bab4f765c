"""Several routers serve the same sessions; what one leaves behind another takes over."""

import hashlib
import struct

import pytest

from kakeya_shared.errors import HistoryLengthMismatch, OperationRunning, WorkerLost
from tests.unit.router.fake_worker import BYTES_PER_TOKEN, FakeWorker
from tests.unit.router.stack import Client, Stack, eventually

OPERATION = "kakeya:{{tiny}}:op:{}"


@pytest.fixture
async def session_id(client: Client, worker: FakeWorker) -> str:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    return session_id


async def _leave_behind(stack: Stack, session_id: str, lease_until_ms: int = 1, **fields: str) -> None:
    """What a router leaves in Redis that died in the middle of an operation."""
    record = {"op_id": "theirs", "kind": "append", "router": "dead", "start_length": "2"}
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


async def test_an_operation_whose_lease_runs_is_left_alone(
    stack: Stack, client: Client, worker: FakeWorker, session_id: str
) -> None:
    await _leave_behind(stack, session_id, lease_until_ms=2**50)
    with pytest.raises(OperationRunning):
        await client.append(session_id, [3])
    assert worker.calls["Stop"] == 0


async def test_soon_after_an_outage_a_lapsed_lease_still_counts(
    stack: Stack, worker: FakeWorker, session_id: str
) -> None:
    fresh_router = await stack.router(heartbeat_interval_seconds=1.0, worker_lease_seconds=9)
    await _leave_behind(stack, session_id)
    with pytest.raises(OperationRunning):
        await fresh_router.append(session_id, [3])
    await eventually(lambda: _append(fresh_router, session_id, [3]))


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


async def test_a_takeover_from_a_dead_worker_loses_the_session(
    stack: Stack, client: Client, worker: FakeWorker, session_id: str
) -> None:
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
