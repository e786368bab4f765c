"""Forks that wait for a lane beside their source, and where they wait when that is somewhere else by then."""

import asyncio

import pytest

from kakeya_shared.errors.tree import OperationRunning, QueueTimedOut, WorkerLost
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.fake_worker import LANE_BYTES, FakeWorker
from tests.unit.router.lanes.test_queue import QUEUE, stand, waiting
from tests.unit.router.lapses import Waits
from tests.unit.router.sessions.test_forks import SESSION, fork_of, prepared
from tests.unit.router.stack import FORGETFUL, Client, Stack, eventually


@pytest.fixture
async def patient(stack: Stack) -> Client:
    return await stack.router(**QUEUE)


async def die(worker: FakeWorker) -> None:
    await worker.vanish()
    await worker.lapse()


async def state(client: Client, session_id: str) -> str:
    return api.SessionState.Name((await client.info(session_id)).state).removeprefix("SESSION_STATE_")


async def appending(client: Client, worker: FakeWorker, session_id: str) -> "asyncio.Task[api.AppendTokensResponse]":
    """An append that runs until the worker is `flowing` again."""

    async def is_running() -> bool:
        return worker.lanes[session_id].busy

    worker.flowing.clear()
    task = asyncio.create_task(client.append(session_id, [1]))
    await eventually(is_running)
    return task


@pytest.mark.parametrize("end", ["drains", "dies"])
async def test_forks_follow_their_source_off_its_worker(stack: Stack, patient: Client, end: str) -> None:
    """One of them has the source resumed, which is busy for the others until then."""
    worker = await stack.worker(patient, "worker-a", num_lanes=2)
    source = await prepared(patient)
    await patient.session()
    forks = [await waiting(stack, patient, **fork_of(source)) for _ in range(3)]
    other = await stack.worker(patient, "worker-b", num_lanes=8)
    await (patient.drain("worker-a") if end == "drains" else die(worker))
    for fork in forks:
        assert other.lanes[await fork].token_ids == list(range(10))
    assert other.lanes[source].epoch > 1
    await stand(stack, 0)


async def test_a_fork_waits_for_a_source_that_is_busy_on_a_worker_that_drains(stack: Stack, patient: Client) -> None:
    worker = await stack.worker(patient, "worker-a", num_lanes=2)
    source = await prepared(patient)
    await patient.session()
    fork = await waiting(stack, patient, **fork_of(source))
    other = await stack.worker(patient, "worker-b", num_lanes=8)
    call = await appending(patient, worker, source)
    await patient.drain("worker-a")
    await asyncio.sleep(1.5)  # a tick, at which it finds the source busy
    assert not fork.done()
    worker.flowing.set()
    await call
    assert other.lanes[await fork].token_ids == [*range(10), 1]


async def test_a_source_that_is_busy_when_its_forks_turn_comes(stack: Stack, patient: Client) -> None:
    worker = await stack.worker(patient, num_lanes=2)
    source = await prepared(patient)
    held = await patient.session()
    fork = await waiting(stack, patient, **fork_of(source))
    call = await appending(patient, worker, source)
    await patient.close(held)
    with pytest.raises(OperationRunning):
        await fork
    worker.flowing.set()
    await call


async def move(stack: Stack, session_id: str, worker: FakeWorker, other: FakeWorker) -> None:
    """As by another router; it has the lane that it leaves filled at once."""
    other.lanes[session_id] = worker.lanes[session_id]
    of_other = {"worker_id": other.worker_id, "incarnation": other.incarnation, "address": other.address}
    await stack.redis.hset(SESSION.format(session_id), mapping=of_other)
    await stack.redis.hincrby(f"kakeya:{{tiny}}:worker:{other.worker_id}", "reserved_bytes", LANE_BYTES)


async def test_a_fork_follows_a_source_that_moves(stack: Stack, patient: Client) -> None:
    worker = await stack.worker(patient, "worker-a", num_lanes=2)
    source = await prepared(patient)
    await patient.session()
    fork = await waiting(stack, patient, **fork_of(source))
    other = await stack.worker(patient, "worker-b", num_lanes=2)
    await move(stack, source, worker, other)
    assert other.lanes[await fork].token_ids == list(range(10))


async def test_a_fork_of_a_source_that_is_parked_has_it_resumed(stack: Stack, patient: Client) -> None:
    worker = await stack.worker(patient, "worker-a", num_lanes=2)
    source = await prepared(patient)
    await patient.session()
    fork = await waiting(stack, patient, **fork_of(source))
    other = await stack.worker(patient, "worker-b", num_lanes=8)
    await patient.park(source)
    session_id = await fork
    (there,) = [each for each in (worker, other) if session_id in each.lanes]
    assert there.lanes[session_id].token_ids == there.lanes[source].token_ids == list(range(10))


async def test_a_fork_whose_source_moves_holds_nobody_up(stack: Stack, patient: Client) -> None:
    worker = await stack.worker(patient, "worker-a", num_lanes=3)
    source, its_neighbour = await prepared(patient), await prepared(patient, 5)
    held = await patient.session()
    fork = await waiting(stack, patient, **fork_of(source))
    neighbours_fork = await waiting(stack, patient, **fork_of(its_neighbour))
    other = await stack.worker(patient, "worker-b", num_lanes=2)
    held_there = await patient.session()
    await move(stack, source, worker, other)
    await patient.close(held)
    assert worker.lanes[await neighbours_fork].token_ids == list(range(5))
    await stand(stack, 1)
    assert not fork.done()  # now it waits there, where nothing is free
    await patient.close(held_there)
    assert other.lanes[await fork].token_ids == list(range(10))


@pytest.mark.parametrize("queue_seconds", [0, 600])
async def test_a_source_that_is_lost_while_a_fork_waits(stack: Stack, queue_seconds: int) -> None:
    client = await stack.router(**(QUEUE | FORGETFUL | {"queue_seconds": queue_seconds}))
    worker = await stack.worker(client, num_lanes=2)
    await stack.worker(client, "worker-b", num_lanes=1)
    source = await client.session()
    for token_ids in ([1, 2], [3]):
        await client.append(source, token_ids)
    for _ in range(2):
        await client.session()
    fork = await waiting(stack, client, **fork_of(source))
    await die(worker)
    with pytest.raises(WorkerLost):
        await fork
    await stand(stack, 0)


async def test_a_fork_does_not_outwait_its_time_for_a_source_that_finds_no_lane(stack: Stack, waits: Waits) -> None:
    client = await stack.router(**QUEUE)
    worker = await stack.worker(client, "worker-a", num_lanes=2)
    source = await prepared(client)
    await client.session()
    await stack.worker(client, "worker-b", num_lanes=1)
    await client.session()
    fork = await waiting(stack, client, **fork_of(source))
    await die(worker)

    async def is_parked() -> bool:
        return await state(client, source) == "PARKED"

    await eventually(is_parked)
    waits.end()
    with pytest.raises(QueueTimedOut):
        await fork
    await stand(stack, 0)
