"""Workers join, beat, leave and die; the ledger follows."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kakeya_shared.errors.tree import (
    IncompatibleContract,
    InvalidField,
    SessionNotFound,
    UnknownIncarnation,
    WorkerIdTaken,
    WorkerLost,
)
from kakeya_stubs.worker.v1 import registry_pb2 as pb
from tests.unit.router.fake_worker import BYTES_PER_TOKEN, LANE_BYTES, FakeWorker
from tests.unit.router.lapses import be_lost, expire
from tests.unit.router.stack import FAST, FORGETFUL, LONG_SECONDS, Client, Stack, answer, begin_ahead, eventually


async def test_join_tells_how_to_go_on(stack: Stack, client: Client) -> None:
    other_router = await stack.router()
    await eventually(lambda: _listed(stack, 2))
    worker = await stack.worker(client)
    joined = await client.join(worker)
    assert joined.contract_version == 2
    assert joined.heartbeat_interval_seconds == FAST["heartbeat_interval_seconds"]
    assert joined.lease_seconds == FAST["worker_lease_seconds"]
    assert set(joined.router_addresses) == {client.address, other_router.address}


async def _listed(stack: Stack, num_routers: int) -> bool:
    return int(await stack.redis.zcard("kakeya:routers")) == num_routers


async def test_a_router_that_stopped_beating_is_not_listed(stack: Stack, client: Client) -> None:
    await stack.redis.zadd("kakeya:routers", {"gone:1": 1.0})
    await eventually(lambda: _listed(stack, 1))


async def test_every_worker_is_listed_with_what_it_said(client: Client, worker: FakeWorker) -> None:
    status = (await client.workers())["worker-a"]
    request = worker.join_request()
    for field in pb.JoinRequest.DESCRIPTOR.fields:
        if field.name not in ("contract_version", "tunnel", "again"):
            assert getattr(status, field.name) == getattr(request, field.name), field.name
    assert 0 <= status.last_heartbeat_age_seconds < LONG_SECONDS


async def test_another_contract_is_refused(client: Client, worker: FakeWorker) -> None:
    request = worker.join_request()
    for contract_version in (0, 3):
        request.contract_version = contract_version
        with pytest.raises(IncompatibleContract) as raised:
            await answer(client.registry.Join(request))
        assert raised.value.metadata == {"contract_version": "2"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pool", "Not A Pool"),
        ("pool", ""),
        ("worker_id", ""),
        ("incarnation", ""),
        ("lane_bytes", 0),
        ("window", 0),
        ("address", "nowhere"),
        ("fingerprint", ""),
        ("tokenizer_digest", "d" * 65),
        ("model", "Another"),
    ],
)
async def test_a_join_that_makes_no_sense_is_refused(
    client: Client, worker: FakeWorker, field: str, value: str | int
) -> None:
    request = worker.join_request()
    setattr(request, field, value)
    with pytest.raises(InvalidField) as raised:
        await answer(client.registry.Join(request))
    assert raised.value.metadata["field"] == field


async def test_joining_again_keeps_the_ledger(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.join(worker)
    assert (await client.workers())["worker-a"].num_sessions == 1
    assert (await client.append(session_id, [1])).history_length == 1


async def test_joining_again_keeps_the_record(client: Client, worker: FakeWorker) -> None:
    request = worker.join_request()
    request.fingerprint, request.exact = "another", False
    await answer(client.registry.Join(request))
    status = (await client.workers())["worker-a"]
    assert (status.weights, status.fingerprint, status.exact) == ("int8", worker.fingerprint, True)


async def test_a_heartbeat_of_a_stranger_is_refused(client: Client, worker: FakeWorker) -> None:
    stranger = FakeWorker("worker-a")
    stranger.address = worker.address
    with pytest.raises(UnknownIncarnation):
        await client.beat(stranger)
    await stranger.server.grpc_server.stop(0)


async def test_a_process_that_was_replaced_does_not_take_its_id_back(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    """Else two with one id would take it from each other for ever."""
    request = worker.join_request()
    request.incarnation, request.address, request.again = "stale", "127.0.0.1:1", True
    with pytest.raises(WorkerIdTaken):
        await answer(client.registry.Join(request))
    session_id = await client.session()
    assert (await client.append(session_id, [1])).history_length == 1
    await be_lost(worker)
    await eventually(lambda: _joins(client, request))


async def _joins(client: Client, request: pb.JoinRequest) -> bool:
    try:
        await answer(client.registry.Join(request))
    except WorkerIdTaken:
        return False
    return True


async def test_what_is_opened_says_at_which_incarnation(client: Client, worker: FakeWorker) -> None:
    """The address may be another worker's by now."""
    await client.session()
    assert worker.meant == [worker.incarnation]


async def test_the_ledger_agrees_with_the_workers_own_count(client: Client, worker: FakeWorker) -> None:
    for length in (3, 30):
        await client.append(await client.session(), range(length))
    await client.beat(worker)
    status = (await client.workers())["worker-a"]
    assert status.reported_kv_live_bytes == status.kv_live_bytes == (3 + 20) * BYTES_PER_TOKEN
    assert status.reserved_bytes == 2 * LANE_BYTES


async def test_the_memory_of_a_worker_is_what_its_process_said_last(client: Client, worker: FakeWorker) -> None:
    assert (await client.workers())["worker-a"].rss_bytes == 0
    for rss_bytes in (3 << 30, 2 << 30):
        worker.rss_bytes = rss_bytes
        await eventually(lambda: _said(client, worker))
    await _die_by_restart(client, worker)
    assert (await client.workers())["worker-a"].rss_bytes == 0


async def _said(client: Client, worker: FakeWorker) -> bool:
    return (await client.workers())["worker-a"].rss_bytes == worker.rss_bytes


async def test_heartbeats_bring_the_record_forward_and_never_back(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    lane = worker.lanes[session_id]
    lane.token_ids.append(3)
    await client.beat(worker, complete=False)
    assert (await client.info(session_id)).history_length == 2  # nobody generates: Redis must have lost something
    await begin_ahead(stack, session_id)
    await client.beat(worker, complete=False)
    info = await client.info(session_id)
    assert (info.history_length, info.kv_live_bytes) == (3, 3 * BYTES_PER_TOKEN)
    assert [(part.start, part.end) for part in info.retained] == [(0, 3)]
    assert (await client.workers())["worker-a"].kv_live_bytes == 3 * BYTES_PER_TOKEN
    del lane.token_ids[1:]
    await client.beat(worker, complete=False)
    assert (await client.info(session_id)).history_length == 3


async def test_lanes_without_a_lease_are_orphans(stack: Stack, client: Client, worker: FakeWorker) -> None:
    kept, stale, closing = [await client.session() for _ in range(3)]
    request = worker.heartbeat_request()
    for report in request.lanes:
        report.epoch = 9 if report.session_id == stale else 1
    request.lanes.add(session_id="tiny.unknown", epoch=1)
    request.lanes.add(session_id="another pool's", epoch=1)
    await stack.redis.hset(f"kakeya:{{tiny}}:session:{closing}", "state", "closing")
    response = await answer(client.registry.Heartbeat(request))
    assert {(orphan.session_id, orphan.epoch) for orphan in response.orphans} == {
        (stale, 9),
        ("tiny.unknown", 1),
        ("another pool's", 1),
    }
    request.complete = False
    assert not (await answer(client.registry.Heartbeat(request))).orphans
    assert (await client.info(kept)).history_length == 0


async def test_a_lane_that_is_being_opened_is_no_orphan(client: Client, worker: FakeWorker) -> None:
    worker.flowing.clear()
    creating = asyncio.create_task(client.session())
    session_id = (await eventually(lambda: _opening(worker)))[-1]
    request = worker.heartbeat_request()
    request.lanes.add(session_id=session_id, epoch=1)
    assert not (await answer(client.registry.Heartbeat(request))).orphans
    worker.flowing.set()
    assert await creating == session_id


async def _opening(worker: FakeWorker) -> list[str]:
    return worker.opening


async def _die_by_lapse(client: Client, worker: FakeWorker) -> None:
    await worker.lapse()
    await eventually(lambda: _unlisted(client, worker))


async def _die_by_leaving(client: Client, worker: FakeWorker) -> None:
    worker.stop_beating()
    await answer(client.registry.Leave(worker.leave_request()))


async def _die_by_restart(client: Client, worker: FakeWorker) -> None:
    worker.stop_beating()
    worker.incarnation += "-again"
    worker.lanes.clear()
    await client.join(worker)


async def _unlisted(client: Client, worker: FakeWorker) -> bool:
    return worker.worker_id not in await client.workers()


@pytest.mark.parametrize("die", [_die_by_lapse, _die_by_leaving, _die_by_restart])
async def test_the_sessions_of_a_gone_worker_are_lost_then_unknown(
    stack: Stack, worker: FakeWorker, die: Callable[[Client, FakeWorker], Awaitable[None]]
) -> None:
    client = await stack.router(**FORGETFUL)
    session_ids = [await _unrestorable(client, request_id=f"r{i}") for i in range(3)]
    await die(client, worker)
    status = (await client.workers()).get("worker-a")
    assert status is None or (status.reserved_bytes, status.kv_live_bytes, status.num_sessions) == (0, 0, 0)
    for session_id in session_ids:
        for call in (client.info(session_id), client.append(session_id, [1]), client.generate(session_id)):
            with pytest.raises(WorkerLost):
                await call
    for session_id in session_ids:
        await eventually(lambda: _state(stack, session_id, "lost"))  # noqa: B023  # awaited at once
        await expire(stack, session_id)
    await eventually(lambda: _nothing(stack))
    with pytest.raises(SessionNotFound):
        await client.info(session_ids[0])


async def test_a_worker_that_is_silent_for_as_long_as_its_lease_is_lost(stack: Stack) -> None:
    client = await stack.router(worker_lease_seconds=0.5)
    worker = await stack.worker(client, beating=False)
    await eventually(lambda: _unlisted(client, worker))


async def test_a_lost_session_answers_for_as_long_as_it_is_to(stack: Stack) -> None:
    client = await stack.router(**FORGETFUL, lost_retention_seconds=5000)
    worker = await stack.worker(client)
    session_id = await _unrestorable(client)
    await _die_by_leaving(client, worker)
    await eventually(lambda: _state(stack, session_id, "lost"))
    expires_at, (seconds, _) = await stack.redis.zscore("kakeya:{tiny}:expiry", session_id), await stack.redis.time()
    assert 4000 < expires_at / 1000 - seconds <= 5001


async def _unrestorable(client: Client, **fields: str) -> str:
    session_id = await client.session(**fields)
    for token_ids in ([1, 2], [3]):
        await client.append(session_id, token_ids)
    return session_id


async def _nothing(stack: Stack) -> bool:
    return not await stack.session_keys()


async def test_a_lost_session_can_be_closed(stack: Stack, client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    await _die_by_leaving(client, worker)
    assert await client.close(session_id) == 2


async def test_a_request_is_served_anew_after_its_session_was_lost(stack: Stack, worker: FakeWorker) -> None:
    client = await stack.router(**FORGETFUL)
    first = await _unrestorable(client, request_id="once")
    await _die_by_restart(client, worker)
    await eventually(lambda: _state(stack, first, "lost"))
    assert await client.session(request_id="once") != first


async def _state(stack: Stack, session_id: str, state: str) -> bool:
    return bool(await stack.redis.hget(f"kakeya:{{tiny}}:session:{session_id}", "state") == state)


async def test_an_operation_on_a_silent_host_ends_when_the_worker_is_lost(stack: Stack, worker: FakeWorker) -> None:
    client = await stack.router(**FORGETFUL)
    session_id = await _unrestorable(client)
    worker.flowing.clear()
    appending = asyncio.create_task(client.append(session_id, [1]))
    await eventually(lambda: _appending(worker))
    await worker.lapse()
    with pytest.raises(WorkerLost):
        await appending


async def _appending(worker: FakeWorker) -> bool:
    return worker.calls["Append"] == 3


async def test_a_worker_that_was_lost_by_mistake_joins_with_an_empty_ledger(stack: Stack, worker: FakeWorker) -> None:
    client = await stack.router(**FORGETFUL)
    session_id = await _unrestorable(client)
    await _die_by_leaving(client, worker)
    await client.join(worker)
    status = (await client.workers())["worker-a"]
    assert (status.reserved_bytes, status.num_sessions) == (0, 0)
    with pytest.raises(WorkerLost):
        await client.append(session_id, [1])
    assert [orphan.session_id for orphan in (await client.beat(worker)).orphans] == [session_id]


async def test_joining_again_sweeps_what_the_reaper_has_not(stack: Stack) -> None:
    client = await stack.router(reap_interval_seconds=60, **FORGETFUL)
    worker = await stack.worker(client)
    session_id = await _unrestorable(client)
    await _die_by_leaving(client, worker)
    assert await stack.redis.smembers("kakeya:{tiny}:lost") == {worker.incarnation}
    await client.join(worker)
    assert not await stack.redis.exists("kakeya:{tiny}:lost")
    assert await _state(stack, session_id, "lost")


async def test_leaving_twice_is_harmless_and_an_empty_pool_is_forgotten(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    await _die_by_leaving(client, worker)
    await _die_by_leaving(client, worker)
    await eventually(lambda: _only_routers(stack))
    await client.join(worker)
    await stack.redis.srem("kakeya:pools", "tiny")
    await client.beat(worker)
    assert await stack.redis.smembers("kakeya:pools") == {"tiny"}


async def _only_routers(stack: Stack) -> bool:
    return await stack.keys() == {"kakeya:routers", "kakeya:schema"}
