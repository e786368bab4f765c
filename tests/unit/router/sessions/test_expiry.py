"""The TTL, and a reaper that really runs."""

import asyncio
import time

import pytest
from structlog.testing import capture_logs

from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.session_record import PoolName
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_shared.errors.tree import InvariantViolated, SessionNotFound
from tests.unit.router.fake_worker import FakeWorker
from tests.unit.router.lapses import die, expire
from tests.unit.router.stack import Client, Stack, eventually

SESSION = "kakeya:{{tiny}}:session:{}"
OPERATION = "kakeya:{{tiny}}:op:{}"
WORKERS = "kakeya:{tiny}:workers"


async def _nothing(stack: Stack, worker: FakeWorker) -> bool:
    return not await stack.session_keys() and not worker.lanes


async def test_an_idle_session_expires_and_leaves_nothing(stack: Stack, client: Client, worker: FakeWorker) -> None:
    await stack.router()
    started = time.monotonic()
    appended = await client.session(request_id="r")
    await client.append(appended, [1, 2])
    await expire(stack, appended)
    for number in range(3):
        await client.session(ttl_seconds=1, request_id=f"r{number}")
    await eventually(lambda: _nothing(stack, worker))
    assert time.monotonic() - started >= 1
    status = (await client.workers())["worker-a"]
    assert (status.reserved_bytes, status.kv_live_bytes, status.num_sessions) == (0, 0, 0)
    with pytest.raises(SessionNotFound):
        await client.append(appended, [1])


async def test_operations_refresh_the_ttl_and_info_does_not(stack: Stack, client: Client, worker: FakeWorker) -> None:
    used, watched = await client.session(), await client.session()

    async def expiry(session_id: str) -> float:
        return float(await stack.redis.zscore("kakeya:{tiny}:expiry", session_id))

    used_before, watched_before = await expiry(used), await expiry(watched)
    await asyncio.sleep(0.05)
    await client.append(used, [1])
    await client.info(watched)
    assert await expiry(used) > used_before
    assert await expiry(watched) == watched_before


async def test_the_default_ttl_is_the_routers(stack: Stack) -> None:
    client = await stack.router(session_ttl_seconds=77)
    await stack.worker(client)
    assert await stack.redis.hget(SESSION.format(await client.session()), "ttl_ms") == "77000"


async def test_a_failed_session_answers_until_its_ttl(stack: Stack, client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    worker.failures["Append"] = [InvariantViolated("slots", metadata={"invariant": "inv1"})]
    with pytest.raises(InvariantViolated):
        await client.append(session_id, [1])
    assert (await client.info(session_id)).cache_invariant_inv1_violations == 1
    await expire(stack, session_id)
    await eventually(lambda: _nothing(stack, worker))


async def test_a_session_whose_router_vanished_while_opening_is_taken_away(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    session_id = await client.session()
    await stack.redis.hset(SESSION.format(session_id), "state", "opening")
    await stack.redis.hset(OPERATION.format(session_id), mapping={"claim": "x", "lease_until_ms": 1})
    await stack.redis.zadd("kakeya:{tiny}:expiry", {session_id: 1})
    await eventually(lambda: _nothing(stack, worker))


async def test_a_close_that_its_router_did_not_finish_is_finished(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    session_id = await client.session()
    await stack.redis.hset(SESSION.format(session_id), "state", "closing")
    await stack.redis.hset(OPERATION.format(session_id), mapping={"claim": "x", "lease_until_ms": 1})
    await stack.redis.zadd("kakeya:{tiny}:expiry", {session_id: 1})
    await eventually(lambda: _nothing(stack, worker))


async def test_a_lease_that_seems_to_lapse_while_redis_hangs_is_left(
    stack: Stack, client: Client, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    lapsed, looks = WorkerStore.lapsed, []

    async def late(store: WorkerStore, pool: PoolName, limit: int) -> list[WorkerRecord]:
        """As where the answer came only after a time-out."""
        found = await lapsed(store, pool, limit)
        if found:
            store._redis._answers_since = None
            looks.append(found)
        return found

    async def has_looked() -> bool:
        return len(looks) > 1

    await die(worker)
    with monkeypatch.context() as patched:
        patched.setattr(WorkerStore, "lapsed", late)
        await stack.redis.zadd(WORKERS, {worker.worker_id: 1})
        await eventually(has_looked)
        assert await stack.redis.zscore(WORKERS, worker.worker_id) == 1

    async def is_dropped() -> bool:
        return await stack.redis.zscore(WORKERS, worker.worker_id) is None

    await eventually(is_dropped)


async def test_the_reaper_outlives_what_it_stumbles_over(stack: Stack, client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    with capture_logs() as logs:
        await stack.redis.set("kakeya:{tiny}:lost", "not a set")
        await expire(stack, session_id)
        while sum(entry["event"] == "the reaper has failed and goes on" for entry in logs) < 3:
            await asyncio.sleep(0.01)
    assert session_id in worker.lanes
    await stack.redis.delete("kakeya:{tiny}:lost")
    await eventually(lambda: _nothing(stack, worker))


async def test_channels_to_workers_that_left_are_closed(stack: Stack, client: Client, worker: FakeWorker) -> None:
    other = await stack.worker(client, "worker-b", num_lanes=9)
    await client.close(await client.session())
    await other.vanish()
    await other.lapse()
    await eventually(lambda: _only(client, "worker-a"))
    await client.append(await client.session(), [1])


async def _only(client: Client, worker_id: str) -> bool:
    return (await client.workers()).keys() == {worker_id}
