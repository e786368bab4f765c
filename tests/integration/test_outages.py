"""What a client sees when a process behind it goes: workers, routers, Redis."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import redis

import kakeya
from kakeya_router.settings import RouterSettings
from kakeya_stubs.admin.v1.admin_pb2 import WorkerStatus
from tests.integration.processes import Runtime, eventually, runtime, wait_until

ROUTER_FLAGS = ("--heartbeat-interval-seconds=0.3", "--reap-interval-seconds=0.2")


@pytest.fixture
def fragile(model: Path, tmp_path: Path) -> Iterator[Runtime]:
    """A runtime of one's own."""
    with runtime(model, tmp_path, num_workers=1, router_flags=ROUTER_FLAGS) as made:
        yield made


async def test_a_worker_that_dies_returns_its_bytes_and_its_sessions_go_on_at_the_next(fragile: Runtime) -> None:
    async with kakeya.AsyncClient(fragile.address) as client:
        idle, busy = await client.create_session(), await client.create_session()
        await idle.append(range(10))
        await busy.append(range(10))
        async with busy.generate(max_tokens=200) as generation:
            await generation.next_token()
            fragile.workers[0].kill()
            fragile.lapse(fragile.workers[0])
            await asyncio.to_thread(wait_until, lambda: not fragile.list_workers(), "the worker's lease lapses")
            fragile.start_worker()
            await asyncio.to_thread(fragile.wait_for_workers, 1)
            assert await _drain(generation) == 199
        assert (await busy.info()).history_length == 210
        assert (await idle.append([1])).history_length == 11
        (worker,) = fragile.list_workers()
        assert worker.num_sessions == 2
        for session in (idle, busy):
            await session.close()
        (worker,) = fragile.list_workers()
        assert (worker.reserved_bytes, worker.kv_live_bytes, worker.num_sessions) == (0, 0, 0)


async def _drain(generation: kakeya.AsyncGeneration) -> int:
    """How many tokens came."""
    return len([token_id async for token_id in generation])


async def test_a_worker_that_leaves_cleanly_is_gone_at_once(fragile: Runtime) -> None:
    assert fragile.workers[0].terminate() == 0
    assert fragile.list_workers() == []


async def test_a_worker_that_was_stopped_too_long_comes_back_empty(fragile: Runtime) -> None:
    worker = fragile.workers[0].process
    async with kakeya.AsyncClient(fragile.address) as client:
        session = await client.create_session()
        await session.append(range(10))
        (before,) = fragile.list_workers()
        os.kill(worker.pid, signal.SIGSTOP)
        fragile.lapse(fragile.workers[0])
        try:
            await asyncio.to_thread(wait_until, lambda: not fragile.list_workers(), "the worker's lease lapses")
        finally:
            os.kill(worker.pid, signal.SIGCONT)
        await asyncio.to_thread(fragile.wait_for_workers, 1)
        (after,) = fragile.list_workers()
        assert after.incarnation != before.incarnation
        assert after.reserved_bytes == 0
        for _ in range(8):  # all lanes are free again
            await (await client.create_session()).close()
        assert (await session.append([1])).history_length == 11


async def test_without_redis_calls_fail_fast_and_then_go_on(fragile: Runtime) -> None:
    async with kakeya.AsyncClient(fragile.address, max_attempts=1) as client:
        session = await client.create_session()
        await session.append(range(10))
        fragile.redis.stop()
        for call in (client.create_session, lambda: session.append([1]), session.info):
            with pytest.raises(kakeya.StoreUnavailable) as caught:
                await call()
            assert caught.value.retry_after_seconds
        fragile.redis.start()
        await eventually(lambda: _answers(session), "the session goes on")
        assert (await session.append(range(5))).history_length == 15


async def test_an_outage_that_is_longer_than_its_lease_costs_no_worker(model: Path, tmp_path: Path) -> None:
    flags = ("--heartbeat-interval-seconds=2", "--worker-lease-seconds=5", "--reap-interval-seconds=0.2")
    with runtime(model, tmp_path, num_workers=1, router_flags=flags) as made:
        (before,) = made.list_workers()
        made.redis.stop()
        await asyncio.sleep(6)
        made.redis.start()
        await eventually(lambda: asyncio.to_thread(_beats, made, before), "it beats again")
        (after,) = made.list_workers()
        assert after.incarnation == before.incarnation


def _beats(made: Runtime, before: WorkerStatus) -> bool:
    """Whether the worker has said something since; False while Redis is not found again."""
    try:
        (worker,) = made.list_workers()
    except grpc.RpcError:
        return False
    return worker.last_heartbeat_age_seconds < 5


async def _answers(session: kakeya.AsyncSession) -> bool:
    try:
        await session.info()
    except kakeya.StoreUnavailable:
        return False
    return True


@pytest.fixture
def two_routers(model: Path, tmp_path: Path) -> Iterator[Runtime]:
    """As `fragile`, with a second router that the worker knows from its start."""
    with runtime(model, tmp_path, num_workers=0, router_flags=ROUTER_FLAGS) as made:
        made.start_router(*ROUTER_FLAGS)
        made.start_worker()
        made.wait_for_workers(1)
        yield made


async def test_another_router_takes_over_from_one_that_died(two_routers: Runtime) -> None:
    other = two_routers.routers[1]
    async with kakeya.AsyncClient(two_routers.address) as client, kakeya.AsyncClient(other.address) as second:
        session = await client.create_session()
        await session.append(range(10))
        same = second.session(session.id)
        async with session.generate(max_tokens=65_536) as generation:
            await generation.next_token()
            with pytest.raises(kakeya.OperationRunning):
                await same.append([1])
            two_routers.routers[0].kill()
            with pytest.raises(kakeya.Unavailable):
                await _drain(generation)
        two_routers.routers.reverse()  # the worker is asked after at the one that lives
        two_routers.lapse_operation(session.id)
        await eventually(lambda: _appends(same), "the lapsed operation is taken over")
        info = await same.info()
        assert info.history_length > 11
        await same.close()


async def _appends(session: kakeya.AsyncSession) -> bool:
    """False while the dead router's operation is not taken over, or its tokens were not known before the call."""
    try:
        await session.append([1])
    except kakeya.Conflict:
        return False
    return True


@pytest.mark.heavy
async def test_an_append_whose_router_is_killed_comes_to_its_end_at_another(model: Path, tmp_path: Path) -> None:
    """The dead router's operation holds the session for as long as a lease is by default."""
    lease_seconds = RouterSettings.model_fields["operation_lease_seconds"].default
    flags = (*ROUTER_FLAGS, f"--operation-lease-seconds={lease_seconds}")
    with runtime(model, tmp_path, num_workers=0, router_flags=flags) as made:
        made.start_router(*flags)
        worker = made.start_worker()
        made.wait_for_workers(1)
        first, second = made.routers
        async with kakeya.AsyncClient(f"ipv4:{first.address},{second.address}") as client:
            session = await client.create_session()
            worker.process.send_signal(signal.SIGSTOP)
            appending = asyncio.create_task(session.append(range(10)))
            await eventually(lambda: asyncio.to_thread(_runs, made, session.id), "the operation is on record")
            first.kill()
            worker.process.send_signal(signal.SIGCONT)
            assert (await appending).history_length == 10
            assert (await session.info()).history_length == 10


def _runs(made: Runtime, session_id: str) -> bool:
    with redis.Redis.from_url(made.redis.url) as store:
        return bool(list(store.scan_iter(f"kakeya:*:op:{session_id}")))
