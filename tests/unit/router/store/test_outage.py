"""Redis goes away and comes back."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kakeya_shared.errors.tree import OperationRunning, StoreUnavailable
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.redis_server import RedisServer
from tests.unit.router.fake_worker import FakeWorker
from tests.unit.router.lapses import Clock, expire
from tests.unit.router.stack import LONG_SECONDS, Client, Stack, answer, eventually, stack_on


@pytest.fixture
async def stack(own_redis: RedisServer) -> AsyncIterator[Stack]:
    async with stack_on(own_redis.url) as stack:
        yield stack


async def _health(client: Client) -> str:
    stub = health_pb2_grpc.HealthStub(client.channel)
    response = await stub.Check(health_pb2.HealthCheckRequest(service="kakeya.v1.RuntimeService"))
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))


async def _is(client: Client, status: str) -> bool:
    return await _health(client) == status


async def _nothing(stack: Stack, worker: FakeWorker) -> bool:
    return not await stack.session_keys() and not worker.lanes


async def test_a_router_starts_without_redis_and_serves_when_it_comes(stack: Stack, own_redis: RedisServer) -> None:
    await asyncio.to_thread(own_redis.stop)
    client = await stack.router()
    assert await _health(client) == "NOT_SERVING"
    with pytest.raises(StoreUnavailable):
        await client.create()
    await asyncio.to_thread(own_redis.start)
    await eventually(lambda: _is(client, "SERVING"))
    await stack.worker(client)
    await client.session()


@pytest.mark.parametrize("outage", ["stop", "pause"])
async def test_calls_fail_fast_and_everything_recovers(stack: Stack, own_redis: RedisServer, outage: str) -> None:
    patient, client = await stack.router(), await stack.router(redis_timeout_seconds=0.5)
    worker = await stack.worker(patient)
    session_id = await patient.session()
    await patient.append(session_id, [1, 2])
    await eventually(lambda: _is(client, "SERVING"))
    await asyncio.to_thread(own_redis.stop if outage == "stop" else own_redis.pause)
    for call in (client.create(), client.append(session_id, [3]), client.info(session_id), client.close(session_id)):
        with pytest.raises(StoreUnavailable, match="Redis does not answer") as raised:
            await asyncio.wait_for(call, LONG_SECONDS)
        assert raised.value.retry_after_seconds
    await eventually(lambda: _is(client, "NOT_SERVING"))
    await asyncio.to_thread(own_redis.start if outage == "stop" else own_redis.resume)
    await eventually(lambda: _is(client, "SERVING"))
    assert (await eventually(lambda: _appended(client, session_id, 3))).history_length == 3
    assert worker.lanes[session_id].token_ids == [1, 2, 3]


async def test_nothing_is_reaped_until_heartbeats_had_their_chance(
    stack: Stack, own_redis: RedisServer, clock: Clock
) -> None:
    client = await stack.router()
    worker = await stack.worker(client, beating=False)
    session_id = await client.session()
    await worker.lapse()
    await expire(stack, session_id)
    await asyncio.to_thread(own_redis.stop)
    await eventually(lambda: _is(client, "NOT_SERVING"))
    clock.now += 100  # the time before the outage is none in which a lease could be renewed since
    await asyncio.to_thread(own_redis.start)
    await eventually(lambda: _is(client, "SERVING"))
    clock.now += 0.2  # three intervals are a worker's chance
    await asyncio.sleep(0.2)  # some passes
    assert session_id in worker.lanes
    assert (await client.workers()).keys() == {"worker-a"}
    await client.beat(worker, complete=False)
    clock.now += 0.2
    await eventually(lambda: _nothing(stack, worker))
    assert (await client.workers()).keys() == {"worker-a"}


async def test_what_a_generate_committed_is_written_through_when_redis_is_back(
    stack: Stack, own_redis: RedisServer
) -> None:
    client = await stack.router(worker_lease_seconds=60)
    worker = await stack.worker(client)
    worker.stop_beating()  # so that no heartbeat brings the record forward
    session_id = await client.session()
    await client.append(session_id, [1])
    worker.pause_in = 1
    call = client.generating(session_id, 400)
    assert (await call.read()).HasField("token_id")
    await asyncio.to_thread(own_redis.stop)
    worker.flowing.set()
    with pytest.raises(StoreUnavailable):
        await answer(_drained(call))
    await asyncio.to_thread(own_redis.start)
    await eventually(lambda: _free(stack, session_id))
    info, lane = await client.info(session_id), worker.lanes[session_id]
    assert (info.history_length, info.kv_live_bytes) == (len(lane.token_ids), lane.state().kv_live_bytes)
    assert len(lane.token_ids) > 1


async def _drained(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


async def test_a_cancel_is_written_through_when_redis_is_back(stack: Stack, own_redis: RedisServer) -> None:
    client = await stack.router(worker_lease_seconds=60)
    worker = await stack.worker(client)
    worker.stop_beating()  # so that no heartbeat brings the record forward
    session_id = await client.session()
    await client.append(session_id, [1])
    call = client.generating(session_id, 1_000_000)
    assert (await call.read()).HasField("token_id")
    await asyncio.to_thread(own_redis.stop)
    call.cancel()
    await eventually(lambda: _stopped(worker))
    await asyncio.to_thread(own_redis.start)
    await eventually(lambda: _free(stack, session_id))
    assert (await client.info(session_id)).history_length == len(worker.lanes[session_id].token_ids)


async def test_an_operation_outlives_an_outage(stack: Stack, own_redis: RedisServer) -> None:
    client = await stack.router(operation_lease_seconds=1)
    worker = await stack.worker(client)
    session_id = await client.session()
    worker.flowing.clear()
    appending = asyncio.create_task(client.append(session_id, [1]))
    await eventually(lambda: _appending(worker))
    await asyncio.to_thread(own_redis.stop)
    await asyncio.sleep(0.5)  # renewals fail
    await asyncio.to_thread(own_redis.start)
    await asyncio.sleep(0.5)
    worker.flowing.set()
    assert (await appending).history_length == 1


async def test_a_silence_of_redis_shorter_than_its_time_out_costs_no_lease(
    stack: Stack, own_redis: RedisServer, clock: Clock
) -> None:
    """No call fails, so that nothing but the time which answers took says that no lease could be renewed."""
    client = await stack.router(worker_lease_seconds=1, operation_lease_seconds=1)
    worker, session_id = await stack.worker(client), await client.session()
    await eventually(lambda: _is(client, "SERVING"))
    worker.flowing.clear()
    appending = asyncio.create_task(client.append(session_id, [1]))
    await eventually(lambda: _appending(worker))
    worker.stop_beating()
    await asyncio.to_thread(own_redis.pause)
    info = asyncio.create_task(client.info(session_id))
    await asyncio.sleep(1.5)  # longer than every lease
    own_redis.resume()
    clock.now += 1.5  # at once: nothing is answered in between, and the first grace is over
    assert (await info).history_length == 1
    await asyncio.sleep(0.3)  # several passes of the reaper
    assert (await client.workers()).keys() == {"worker-a"}
    worker.keep_beating(client.registry)
    worker.flowing.set()
    assert (await appending).history_length == 1


async def _appending(worker: FakeWorker) -> int:
    return worker.calls["Append"]


async def _stopped(worker: FakeWorker) -> int:
    return worker.calls["Stop"]


async def _free(stack: Stack, session_id: str) -> bool:
    return not await stack.redis.exists(f"kakeya:{{tiny}}:op:{session_id}")


async def test_a_begin_whose_answer_was_lost_is_undone(stack: Stack) -> None:
    patient, hasty = await stack.router(), await stack.router(redis_timeout_seconds=0.5)
    await stack.worker(patient)
    session_id = await patient.session()
    await stack.redis.client_pause(2000, all=False)  # reads are answered, writes wait
    with pytest.raises(StoreUnavailable):
        await hasty.append(session_id, [1])
    assert (await eventually(lambda: _appended(patient, session_id, 1))).history_length == 1


async def _appended(client: Client, session_id: str, token_id: int) -> api.AppendTokensResponse | None:
    try:
        return await client.append(session_id, [token_id], expected_history_length=token_id - 1)
    except (StoreUnavailable, OperationRunning):
        return None


async def test_a_create_whose_answer_was_lost_is_undone(stack: Stack, own_redis: RedisServer) -> None:
    patient, hasty = await stack.router(), await stack.router(redis_timeout_seconds=0.5)
    worker = await stack.worker(patient)
    worker.flowing.clear()
    creating = asyncio.create_task(hasty.create())
    while not worker.opening:
        await asyncio.sleep(0.01)
        if creating.done():  # Redis took too long to answer even so
            with pytest.raises(StoreUnavailable):
                await creating
            creating = asyncio.create_task(hasty.create())
    await asyncio.to_thread(own_redis.pause)
    worker.flowing.set()
    with pytest.raises(StoreUnavailable):
        await creating
    await asyncio.to_thread(own_redis.resume)
    await eventually(lambda: _nothing(stack, worker))


async def test_a_replica_is_no_store(stack: Stack) -> None:
    client = await stack.router()
    await stack.worker(client)
    await eventually(lambda: _is(client, "SERVING"))
    await stack.redis.execute_command("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(StoreUnavailable):
        await client.create()
    await eventually(lambda: _is(client, "NOT_SERVING"))
    await stack.redis.execute_command("REPLICAOF", "NO", "ONE")
    await eventually(lambda: _is(client, "SERVING"))
    await client.create()


async def test_a_router_stops_cleanly_without_redis(stack: Stack, own_redis: RedisServer) -> None:
    client = await stack.router()
    await asyncio.to_thread(own_redis.stop)
    await asyncio.wait_for(stack.stop_routers(), LONG_SECONDS)
    with pytest.raises(grpc.aio.AioRpcError):
        await _health(client)
