"""Operations that do not come to their end: what was committed stays, the session is free, nothing is left over."""

import asyncio
from typing import Any

import grpc
import pytest

from kakeya_shared.contract.features import ANSWER_STREAM
from kakeya_shared.errors.tree import (
    DeadlineExceeded,
    Internal,
    InvariantViolated,
    KakeyaError,
    OperationStopped,
    SessionClosed,
    SessionNotFound,
    StaleEpoch,
    WorkerLost,
)
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.fake_worker import LANE_BYTES, FakeWorker
from tests.unit.router.lapses import expire
from tests.unit.router.stack import FORGETFUL, Client, Stack, answer, eventually


async def _idle(stack: Stack, session_id: str) -> bool:
    return not await stack.redis.exists(f"kakeya:{{tiny}}:op:{session_id}")


async def _num_operations(stack: Stack, session_id: str) -> int:
    """That have begun."""
    return int(await stack.redis.hget(f"kakeya:{{tiny}}:session:{session_id}", "operation_number") or 0)


async def _first_token(call: Any) -> int:
    response = await call.read()
    assert response.HasField("token_id")
    return int(response.token_id)


async def _agrees(stack: Stack, client: Client, worker: FakeWorker, session_id: str) -> int:
    """Waits until the session is free; the record, the lane and the ledger then tell the same.

    A call whose client has left may begin its operation after a look at the session, which then says nothing.
    """
    number, began = -1, await _num_operations(stack, session_id)
    while number != began:
        number = began
        await eventually(lambda: _idle(stack, session_id))
        info, lane = await client.info(session_id), worker.lanes[session_id].state()
        ledger = (await client.workers())["worker-a"]
        began = await _num_operations(stack, session_id)
    assert (info.history_length, info.kv_live_bytes) == (lane.history_length, lane.kv_live_bytes)
    assert ledger.kv_live_bytes == lane.kv_live_bytes
    return int(lane.history_length)


async def test_a_cancelled_generate_keeps_what_was_committed(stack: Stack, client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    call = client.generating(session_id, 1_000_000)
    await _first_token(call)
    call.cancel()
    length = await _agrees(stack, client, worker, session_id)
    assert 3 <= length < 1_000_000
    assert worker.calls["Stop"] == 1
    assert (await client.append(session_id, [5])).history_length == length + 1


async def test_a_cancelled_append_loses_no_more_than_its_answer(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    session_id = await client.session()
    call = client.runtime.AppendTokens(api.AppendTokensRequest(session_id=session_id, token_ids=[1] * 2_000))
    await eventually(lambda: _length(worker, session_id))
    call.cancel()
    assert await _agrees(stack, client, worker, session_id) == 2_000
    assert worker.calls["Append"] == 1


async def _length(worker: FakeWorker, session_id: str) -> int:
    return len(worker.lanes[session_id].token_ids)


async def test_a_deadline_reaches_the_worker(stack: Stack, client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    length = 1
    for timeout_seconds in (0.3, 3, 30):  # where the machine is busy nothing may have come within the first
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            async for _ in client.generating(session_id, 1_000_000, timeout=timeout_seconds):
                pass
        assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        length = await _agrees(stack, client, worker, session_id)
        if length > 1:
            break
    assert length > 1


async def test_a_deadline_that_only_the_worker_sees(stack: Stack, client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    worker.failures["Append"] = [DeadlineExceeded("passed")]
    with pytest.raises(DeadlineExceeded):
        await client.append(session_id, [1])
    await _is_made_up_for(client, worker, session_id)


async def _is_made_up_for(client: Client, worker: FakeWorker, session_id: str) -> None:
    """The tokens of an append that failed at the worker are in the history; the next operation prefills them."""
    info = await client.info(session_id)
    assert (info.history_length, info.kv_live_bytes) == (1, 0)
    assert (await client.append(session_id, [1], expected_history_length=0)).history_length == 1
    assert (await client.append(session_id, [2])).history_length == 2
    assert worker.lanes[session_id].token_ids == [1, 2]


async def test_a_client_that_vanishes_leaves_the_session_free(stack: Stack, client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    visitor = Client(client.address)
    await _first_token(visitor.generating(session_id, 1_000_000))
    await visitor.channel.close()
    await _agrees(stack, client, worker, session_id)


async def test_clients_that_leave_at_any_point_leave_nothing(stack: Stack, client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    for step in range(40):
        call = client.generating(session_id, 1_000_000)
        await asyncio.sleep(step * 0.0005)
        call.cancel()
        await _agrees(stack, client, worker, session_id)
    await client.close(session_id)
    assert not await stack.session_keys()


async def test_creates_that_are_cancelled_at_any_point_leave_nothing(stack: Stack, client: Client) -> None:
    worker = await stack.worker(client, num_lanes=100)
    for step in range(40):
        call = client.runtime.CreateSession(api.CreateSessionRequest(request_id=f"request-{step}"))
        await asyncio.sleep(step * 0.0002)
        call.cancel()
        # The answer may have been on its way already; nobody but the same request can then find the session.
        await client.close(await client.session(request_id=f"request-{step}"))
    await eventually(lambda: _nothing(stack, worker))
    ledger = (await client.workers())["worker-a"]
    assert (ledger.reserved_bytes, ledger.num_sessions) == (0, 0)


async def _nothing(stack: Stack, worker: FakeWorker) -> bool:
    return not await stack.session_keys() and not worker.lanes


async def test_close_wins_over_a_running_operation(stack: Stack, client: Client, worker: FakeWorker) -> None:
    other_router = await stack.router()
    session_id = await client.session()
    await client.append(session_id, [1])
    call = client.generating(session_id, 1_000_000)
    await _first_token(call)
    assert await other_router.close(session_id) >= 2
    with pytest.raises(SessionClosed):
        await answer(_drained(call))
    assert await call.code() is grpc.StatusCode.CANCELLED
    assert not await stack.session_keys()
    with pytest.raises(SessionNotFound):
        await client.info(session_id)


async def _drained(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


async def test_close_wins_although_the_worker_does_not_hear_of_it(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    call = client.generating(session_id, 1_000_000)
    await _first_token(call)
    worker.failures["CloseSession"] = [RuntimeError("a bug")]
    await client.close(session_id)
    with pytest.raises(SessionClosed):
        await answer(_drained(call))
    orphans = (await client.beat(worker)).orphans
    assert [orphan.session_id for orphan in orphans] == [session_id]


async def test_a_worker_that_dies_in_the_middle_loses_a_session_that_nobody_can_restore(
    stack: Stack, worker: FakeWorker
) -> None:
    client = await stack.router(**FORGETFUL)
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    call = client.generating(session_id, 1_000_000)
    await _first_token(call)
    await worker.vanish()
    with pytest.raises(WorkerLost):
        await answer(_drained(call))
    for again in (client.append(session_id, [1]), client.generate(session_id), client.info(session_id)):
        with pytest.raises(WorkerLost):
            await again
    ledger = (await client.workers())["worker-a"]
    assert (ledger.reserved_bytes, ledger.kv_live_bytes, ledger.num_sessions) == (0, 0, 0)
    await expire(stack, session_id)
    await eventually(lambda: _nothing_stored(stack))
    with pytest.raises(SessionNotFound):
        await client.info(session_id)


async def _nothing_stored(stack: Stack) -> bool:
    return not await stack.session_keys()


@pytest.mark.parametrize("failure", [SessionNotFound("no lane"), StaleEpoch("another epoch")])
async def test_a_worker_that_does_not_know_the_lane_gets_it_anew(
    stack: Stack, client: Client, worker: FakeWorker, failure: KakeyaError
) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    worker.failures["Append"] = [failure]
    worker.failures["Stop"] = [failure]
    assert (await client.append(session_id, [2])).history_length == 2
    assert worker.lanes[session_id].token_ids == [1, 2]
    assert worker.lanes[session_id].epoch > 1
    assert (await client.info(session_id)).epoch > 1
    assert not (await client.beat(worker)).orphans
    ledger = (await client.workers())["worker-a"]
    assert (ledger.reserved_bytes, ledger.num_sessions) == (LANE_BYTES, 1)


async def test_a_call_that_broke_off_although_the_worker_lives(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    session_id = await client.session()
    worker.failures["Append"] = [SessionNotFound("for once")]
    assert (await client.append(session_id, [1])).history_length == 1
    assert worker.lanes[session_id].token_ids == [1]
    assert (worker.calls["Stop"], worker.calls["OpenSession"]) == (1, 1)


async def test_an_unforeseen_error_of_the_worker_is_internal_and_the_session_goes_on(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    session_id = await client.session()
    worker.failures["Append"] = [RuntimeError("secret")]
    with pytest.raises(Internal) as raised:
        await client.append(session_id, [1])
    assert "secret" not in raised.value.message
    assert raised.value.metadata["trace_id"]
    await _is_made_up_for(client, worker, session_id)


async def test_a_violation_found_while_stopping_fails_the_session(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    session_id = await client.session()
    worker.failures["Append"] = [RuntimeError("a bug")]
    worker.failures["Stop"] = [InvariantViolated("lane length", metadata={"invariant": "inv1"})]
    with pytest.raises(InvariantViolated):
        await client.append(session_id, [1])
    assert (await client.info(session_id)).cache_invariant_inv1_violations == 1


@pytest.mark.parametrize("features", [[], [ANSWER_STREAM]], ids=["by a call", "by a stream"])
async def test_a_stream_without_an_end_is_internal(stack: Stack, client: Client, features: list[str]) -> None:
    worker = await stack.worker(client, features=features)
    session_id = await client.session()
    await client.append(session_id, [1])
    worker.forgets_done = True
    with pytest.raises(Internal):
        await client.generate(session_id, 3)
    assert await _agrees(stack, client, worker, session_id) == 4


async def test_a_long_operation_keeps_its_lease_and_its_session(stack: Stack, worker: FakeWorker) -> None:
    client = await stack.router(operation_lease_seconds=1)
    session_id = await client.session()
    worker.flowing.clear()
    appending = asyncio.create_task(client.append(session_id, [1]))
    await eventually(lambda: _busy(stack, session_id))
    await expire(stack, session_id)
    leased_until = await _leased_until(stack, session_id)

    async def is_leased_anew() -> bool:
        return await _leased_until(stack, session_id) > leased_until + 1500

    await eventually(is_leased_anew)
    assert session_id in worker.lanes
    worker.flowing.set()
    assert (await appending).history_length == 1


async def _leased_until(stack: Stack, session_id: str) -> int:
    return int(await stack.redis.hget(f"kakeya:{{tiny}}:op:{session_id}", "lease_until_ms"))


async def test_an_operation_that_is_taken_away_ends(stack: Stack, worker: FakeWorker) -> None:
    client = await stack.router(operation_lease_seconds=1)  # what it hears at its renewals
    session_id = await client.session()
    worker.flowing.clear()
    appending = asyncio.create_task(client.append(session_id, [1]))
    await eventually(lambda: _busy(stack, session_id))
    await stack.redis.hset(f"kakeya:{{tiny}}:op:{session_id}", "claim", "somebody-else")
    with pytest.raises(OperationStopped):
        await appending


async def test_an_operation_whose_session_failed_meanwhile_says_so(stack: Stack, worker: FakeWorker) -> None:
    client = await stack.router(operation_lease_seconds=1)
    session_id = await client.session()
    worker.flowing.clear()
    appending = asyncio.create_task(client.append(session_id, [1]))
    await eventually(lambda: _busy(stack, session_id))
    failed = {"state": "failed", "inv1_violations": 1}
    await stack.redis.hset(f"kakeya:{{tiny}}:session:{session_id}", mapping=failed)
    await stack.redis.delete(f"kakeya:{{tiny}}:op:{session_id}")
    with pytest.raises(InvariantViolated):
        await appending


async def test_an_operation_that_ends_after_it_was_taken_away_is_not_acknowledged(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    session_id = await client.session()
    worker.flowing.clear()
    appending = asyncio.create_task(client.append(session_id, [1]))
    await eventually(lambda: _busy(stack, session_id))
    await stack.redis.hset(f"kakeya:{{tiny}}:op:{session_id}", "claim", "somebody-else")
    worker.flowing.set()
    with pytest.raises(OperationStopped):
        await appending


async def _busy(stack: Stack, session_id: str) -> bool:
    return not await _idle(stack, session_id)
