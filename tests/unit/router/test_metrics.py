"""What a router shows of itself and of the runtime, as a reader has it."""

import asyncio
import math
from collections.abc import AsyncIterator

import grpc
import pytest

from kakeya_router.metrics import MAX_TENANTS, OTHERS, RouterMetrics, TenantLabels
from kakeya_router.program import Router
from kakeya_router.settings import RouterSettings
from kakeya_router.workers import fleet_reading
from kakeya_shared.errors.tree import InvariantViolated, NoCapacity, QueueTimedOut
from kakeya_shared.metrics.meters import Meters
from kakeya_shared.process.service_process import StartError
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.redis_server import RedisServer
from tests.scrape import Exposition
from tests.unit.router.fake_worker import BYTES_PER_TOKEN, LANE_BYTES, FakeWorker, SnapshotFiles
from tests.unit.router.keyed import Keyed, keyed_on
from tests.unit.router.lapses import Waits, be_lost, expire
from tests.unit.router.stack import (
    FAST,
    FORGETFUL,
    METRICS_ON,
    Client,
    Stack,
    answer,
    eventually,
    has_snapshot,
    stack_on,
)


@pytest.fixture
async def client(stack: Stack) -> Client:
    return await stack.router(**METRICS_ON)


@pytest.fixture
async def keyed(redis_url: str) -> AsyncIterator[Keyed]:
    async with keyed_on(redis_url, **METRICS_ON) as keyed:
        yield keyed


async def shown(stack: Stack, name: str, value: float, **labels: str) -> Exposition:
    """The exposition in which a sample has this value, as soon as it has."""

    async def has_it() -> Exposition | None:
        seen = await stack.scrape()
        return seen if seen.value(name, **labels) == value else None

    found: Exposition = await eventually(has_it)
    return found


async def test_the_runtime_is_shown_as_it_is_now(stack: Stack, client: Client) -> None:
    await stack.worker(client, "worker-a", beating=False)
    draining = await stack.worker(client, "worker-b", pool="small", model="Small", beating=False)
    ids = [await client.session(model="Tiny") for _ in range(3)]
    await client.append(ids[0], range(5))
    await client.park(ids[1])
    draining.draining = True
    await client.beat(draining)
    seen = await stack.scrape()
    assert {state: seen.value("kakeya_router_sessions", state=state) for state in ("running", "idle", "parked")} == {
        "running": 0,
        "idle": 2,
        "parked": 1,
    }
    assert (
        seen.value("kakeya_router_workers", state="ready"),
        seen.value("kakeya_router_workers", state="draining"),
    ) == (
        1,
        1,
    )
    assert (seen.value("kakeya_router_lanes", state="used"), seen.value("kakeya_router_lanes", state="free")) == (2, 6)
    assert seen.value("kakeya_router_kv_reserved_bytes") == 2 * LANE_BYTES
    assert seen.value("kakeya_router_kv_free_bytes") == 6 * LANE_BYTES
    assert seen.value("kakeya_kv_utilization_ratio") == 2 / 4  # of the workers that are not drained
    assert seen.by_label("kakeya_router_queue_length", "pool") == {"small": 0, "tiny": 0}
    assert seen.value("kakeya_router_redis_up") == 1


async def test_live_bytes_are_what_the_heartbeat_of_that_number_said(stack: Stack, client: Client) -> None:
    workers = [await stack.worker(client, f"worker-{letter}", beating=False) for letter in "ab"]
    seen = await stack.scrape()
    assert seen.by_label("kakeya_router_worker_heartbeat_number", "worker") == {"worker-a": 0, "worker-b": 0}
    ids = [await client.session() for _ in range(4)]
    for number, session_id in enumerate(ids):
        await client.append(session_id, range(number + 1))
    told = {worker.worker_id: worker.heartbeat_request() for worker in workers}
    for request in told.values():
        await answer(client.registry.Heartbeat(request))
    await client.append(ids[0], range(5))  # which nobody has said yet
    seen = await stack.scrape()
    numbers = seen.by_label("kakeya_router_worker_heartbeat_number", "worker")
    live = seen.by_label("kakeya_router_worker_kv_live_bytes", "worker")
    assert numbers == {name: request.number for name, request in told.items()}
    assert live == {name: request.kv_live_bytes for name, request in told.items()}
    assert seen.value("kakeya_router_kv_live_bytes") == sum(live.values()) == 10 * BYTES_PER_TOKEN


async def test_a_late_heartbeat_is_not_taken_for_new(stack: Stack, client: Client) -> None:
    worker = await stack.worker(client, beating=False)
    late = worker.heartbeat_request()
    await client.append(await client.session(), range(7))
    await client.beat(worker)
    await answer(client.registry.Heartbeat(late))
    seen = await stack.scrape()
    assert seen.value("kakeya_router_kv_live_bytes") == 7 * BYTES_PER_TOKEN
    assert seen.value("kakeya_router_worker_heartbeat_number", worker="worker-a") == late.number + 1
    unnumbered = worker.heartbeat_request()
    unnumbered.number, unnumbered.kv_live_bytes = 0, 1  # an older worker's
    await answer(client.registry.Heartbeat(unnumbered))
    assert (await stack.scrape()).value("kakeya_router_kv_live_bytes") == 1


async def test_calls_are_counted_by_what_their_clients_are_told(stack: Stack, client: Client) -> None:
    await stack.worker(client, num_lanes=1)
    await client.session()
    for _ in range(2):
        with pytest.raises(NoCapacity):
            await client.session()
    seen = await stack.scrape()
    create = "kakeya.v1.RuntimeService/CreateSession"
    assert seen.value("kakeya_router_calls_total", method=create, reason="OK") == 1
    assert seen.value("kakeya_router_calls_total", method=create, reason="NO_CAPACITY") == 2
    assert seen.value("kakeya_router_opened_sessions_total", kind="new") == 1
    assert seen.value("kakeya_router_redis_seconds_count") > 10


async def test_tokens_of_an_answer_and_their_pace(stack: Stack, client: Client) -> None:
    await stack.worker(client)
    session_id = await client.session()
    await client.append(session_id, range(8))
    await client.generate(session_id, 40)
    seen = await stack.scrape()
    assert seen.value("kakeya_router_appended_tokens_total") == 8
    assert seen.value("kakeya_router_generated_tokens_total") == 40
    assert seen.value("kakeya_router_time_to_first_token_seconds_count") == 1
    assert seen.value("kakeya_router_time_per_output_token_seconds_count") == 1
    num_groups = seen.value("kakeya_router_journal_groups_total")
    assert seen.value("kakeya_router_journal_lag_seconds_count") == num_groups
    first, rest = (
        seen.value(f"kakeya_router_time_{name}_seconds_sum") for name in ("to_first_token", "per_output_token")
    )
    assert first > 0
    assert 0 < 39 * rest < 60


async def test_an_answer_that_breaks_off_counts_what_came(stack: Stack, client: Client) -> None:
    await stack.worker(client)
    session_id = await client.session()
    await client.append(session_id, range(8))
    call = client.generating(session_id, 1_000_000)
    for _ in range(4):
        await call.read()
    await shown(stack, "kakeya_running_requests", 1)
    call.cancel()
    await shown(stack, "kakeya_running_requests", 0)
    assert (await stack.scrape()).value("kakeya_router_generated_tokens_total") >= 3


async def test_waits_for_a_lane_with_and_without_one(stack: Stack, waits: Waits) -> None:
    client = await stack.router(admission="queue", queue_seconds=600, **METRICS_ON)
    await stack.worker(client, num_lanes=1)
    held = await client.session()
    first = asyncio.create_task(client.session())
    await shown(stack, "kakeya_queued_requests", 1)
    await shown(stack, "kakeya_router_queue_length", 1, pool="tiny")
    await client.close(held)
    await first
    assert (await stack.scrape()).value("kakeya_router_queue_wait_seconds_count", got="lane") == 1
    second = asyncio.create_task(client.session())
    await shown(stack, "kakeya_queued_requests", 1)
    waits.end()
    with pytest.raises(QueueTimedOut):
        await second
    seen = await stack.scrape()
    assert seen.value("kakeya_router_queue_wait_seconds_count", got="none") == 1
    assert seen.value("kakeya_queued_requests") == 0


async def test_an_operation_that_waits_for_its_lane_is_queued_and_does_not_run(stack: Stack) -> None:
    client = await stack.router(admission="queue", queue_seconds=600, **METRICS_ON)
    await stack.worker(client, num_lanes=1, files=SnapshotFiles())
    parked = await client.session()
    await client.append(parked, range(3))
    await client.park(parked)
    held = await client.session()
    call = asyncio.create_task(client.generate(parked, 2))
    seen = await shown(stack, "kakeya_queued_requests", 1)
    assert seen.value("kakeya_running_requests") == 0
    await client.close(held)
    await call
    seen = await stack.scrape()
    assert seen.value("kakeya_router_resume_seconds_count", reason="parked") == 1
    assert seen.value("kakeya_router_snapshot_seconds_count", outcome="written") >= 1


@pytest.mark.parametrize("reason", ["request", "drain", "room", "idle"])
async def test_parks_by_why(stack: Stack, reason: str) -> None:
    client = await stack.router(admission="evict-idle", close_idle_after_seconds=0.0, **METRICS_ON)
    worker = await stack.worker(client, num_lanes=1, files=SnapshotFiles())
    session_id = await client.session(**({"park_after_seconds": 1} if reason == "idle" else {}))
    await client.append(session_id, range(3))
    await client.generate(session_id, 2)
    await eventually(lambda: has_snapshot(stack, session_id, 5))
    if reason == "request":
        await client.park(session_id)
    elif reason == "drain":
        await client.drain(worker.worker_id)
    elif reason == "room":
        await client.session()
    await shown(stack, "kakeya_router_park_seconds_count", 1, reason=reason)


async def test_a_lost_worker_and_the_recovery_of_its_session(stack: Stack, client: Client) -> None:
    workers = [await stack.worker(client, f"worker-{letter}") for letter in "ab"]
    session_id = await client.session()
    await client.append(session_id, range(8))
    (holding,) = (worker for worker in workers if session_id in worker.lanes)
    holding.pause_in = 1
    call = client.generating(session_id, 200)
    responses = [await call.read()]
    await be_lost(holding)
    while (response := await call.read()) is not grpc.aio.EOF:
        responses.append(response)
    assert responses[-1].done.generated_token_count == 200
    await shown(stack, "kakeya_router_lost_workers_total", 1)  # by a sweep, which the session has not waited for
    seen = await stack.scrape()
    assert seen.value("kakeya_router_recovery_seconds_count", reason="worker") == 1
    assert seen.value("kakeya_router_resume_seconds_count", reason="recovery") == 1
    assert seen.value("kakeya_router_generated_tokens_total") == 200


async def test_a_session_that_moves(stack: Stack) -> None:
    client = await stack.router(**FORGETFUL, **METRICS_ON)
    left = await stack.worker(client)
    session_id = await client.session()
    for _ in range(2):
        await client.append(session_id, [1, 2])
        await client.generate(session_id, 2)
    other = await stack.worker(client, "worker-b")
    await client.drain(left.worker_id)
    await eventually(lambda: _is_at(other, session_id))
    await shown(stack, "kakeya_router_move_seconds_count", 1, outcome="moved")


async def _is_at(worker: FakeWorker, session_id: str) -> bool:
    return session_id in worker.lanes


async def test_sessions_that_end_otherwise(stack: Stack, client: Client) -> None:
    worker = await stack.worker(client)
    failed, expired = await client.session(), await client.session()
    worker.failures["Append"] = [InvariantViolated("lane length", metadata={"invariant": "inv1"})]
    with pytest.raises(InvariantViolated):
        await client.append(failed, [1])
    await expire(stack, expired)
    await shown(stack, "kakeya_router_expired_sessions_total", 1)
    assert (await stack.scrape()).value("kakeya_router_invariant_violations_total", invariant="inv1") == 1


async def test_tenants_have_what_is_theirs(keyed: Keyed) -> None:
    await keyed.worker(num_lanes=4)
    for tenant, number in (("acme", 1), ("zebra", 2)):
        client = await keyed.tenant(tenant)
        for _ in range(number):
            session_id = await client.session()
            await client.append(session_id, range(3))
            await client.generate(session_id, 5)
    seen = await keyed.stack.scrape()
    assert seen.by_label("kakeya_router_tenant_sessions", "tenant") == {"acme": 1, "zebra": 2}
    assert seen.value("kakeya_router_tenant_kv_reserved_bytes", tenant="zebra") == 2 * LANE_BYTES
    assert seen.by_label("kakeya_router_tenant_queue_length", "tenant") == {"acme": 0, "zebra": 0}
    assert seen.value("kakeya_router_tenant_tokens_total", tenant="acme", kind="appended") == 3
    assert seen.value("kakeya_router_tenant_tokens_total", tenant="zebra", kind="generated") == 10
    calls = {"method": "kakeya.v1.RuntimeService/ListModels", "reason": "UNAUTHENTICATED"}
    before = seen.value("kakeya_router_calls_total", **calls)
    with pytest.raises(grpc.aio.AioRpcError):
        await keyed.client("a-wrong-key-of-nobody-at-all").runtime.ListModels(api.ListModelsRequest())
    await shown(keyed.stack, "kakeya_router_calls_total", before + 1, **calls)


def test_however_many_tenants_there_are_the_labels_are_bounded() -> None:
    metrics = RouterMetrics(Meters())
    for number in range(3 * MAX_TENANTS):
        metrics.count_appended(f"tenant-{number}", 1)
    for number in range(3 * MAX_TENANTS):
        metrics.count_generated(f"tenant-{number}", 2)
    metrics.count_generated("", 7)  # who calls without a key
    seen = Exposition.of(metrics.meters.exposition()[0].decode())
    assert len(seen.values("kakeya_router_tenant_tokens_total", kind="appended")) == MAX_TENANTS + 1
    assert seen.value("kakeya_router_tenant_tokens_total", tenant=OTHERS, kind="appended") == 2 * MAX_TENANTS
    assert seen.value("kakeya_router_tenant_tokens_total", tenant="tenant-0", kind="generated") == 2
    assert TenantLabels(max_tenants=0).label("acme") == OTHERS


async def test_a_redis_that_is_away_leaves_a_gap_and_no_old_numbers(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_reading, "_LOOK_SECONDS", 0.2)
    async with stack_on(own_redis.url) as stack:
        client = await stack.router(**METRICS_ON)
        await stack.worker(client)
        await client.append(await client.session(), range(4))
        await shown(stack, "kakeya_router_kv_live_bytes", 4 * BYTES_PER_TOKEN)
        own_redis.pause()
        try:
            seen = await stack.scrape()
            assert seen.value("kakeya_router_redis_up") == 0
            assert math.isnan(seen.value("kakeya_router_kv_live_bytes"))
            assert math.isnan(seen.value("kakeya_kv_utilization_ratio"))
            assert not seen.values("kakeya_router_worker_kv_live_bytes")
            assert not seen.values("kakeya_router_sessions")
        finally:
            own_redis.resume()
        await shown(stack, "kakeya_router_kv_live_bytes", 4 * BYTES_PER_TOKEN)


async def test_a_redis_that_refuses_is_counted(redis_url: str) -> None:
    async with stack_on(redis_url) as stack:
        await stack.router(**METRICS_ON, redis=f"{redis_url.rpartition('/')[0]}/99")

        async def is_counted() -> bool:
            return (await stack.scrape()).value("kakeya_router_redis_failures_total") > 0

        await eventually(is_counted)
        assert (await stack.scrape()).value("kakeya_router_redis_up") == 0


async def test_metrics_that_are_off_are_served_nowhere(stack: Stack) -> None:
    await stack.router()
    assert stack.routers[0].metrics_address == ""


async def test_an_address_that_is_taken_ends_the_start(stack: Stack, client: Client) -> None:
    taken = stack.routers[0].metrics_address
    settings = RouterSettings(**({"redis": stack.url} | FAST | {"metrics_bind": taken}))
    with pytest.raises(StartError, match=f"cannot serve metrics on {taken}"):
        await Router(settings).__aenter__()
