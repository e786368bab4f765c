"""One run: a stretch of overload, two of unequal tenants, and a census at the end."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1 import runtime_pb2_grpc
from kakeya_stubs.worker.v1.verifier_pb2 import GetSlabRequest
from kakeya_stubs.worker.v1.verifier_pb2_grpc import VerifierServiceStub
from tests.integration.credentials import operator_of
from tests.integration.leftovers import Pool, leftovers
from tests.integration.processes import Runtime, bearer
from tests.overload.clients import Metadata
from tests.overload.line_watch import LineWatch
from tests.overload.report import Report
from tests.overload.room_watch import RoomWatch
from tests.overload.stretches import Crowd, Outcome, Stretch, run_stretch

NUM_WORKERS, LANES_PER_WORKER = 2, 4
NUM_LANES = NUM_WORKERS * LANES_PER_WORKER
QUEUE_LENGTH = 2 * NUM_LANES  # of the three times as many that would stand in it
ROUTER_FLAGS = (
    f"--queue-length={QUEUE_LENGTH}",
    "--queue-seconds=10",
    "--session-ttl-seconds=5",
    "--reap-interval-seconds=0.2",
    "--heartbeat-interval-seconds=0.2",
)

_LOAD, _MODEST, _OTHER, _GREEDY = "load", "modest", "other", "greedy"
# Both tenants of the second stretch wait for a lane half of the time; in the third one has ten times the clients.
STRETCHES = (
    Stretch("overload", 0.5, {_LOAD: 4 * NUM_LANES}, vanish=True),
    Stretch("symmetric", 0.25, {_MODEST: NUM_LANES, _OTHER: NUM_LANES}),
    Stretch("greedy", 0.25, {_MODEST: NUM_LANES, _GREEDY: 10 * NUM_LANES}),
)
_LEFTOVER_SECONDS = 20.0
_CALL_SECONDS = 10.0


@dataclass(frozen=True)
class Plan:
    seconds: float
    seed: int


async def run(made: Runtime, plan: Plan, on_stretch: Callable[[str, float], None]) -> Report:
    """Args:
    on_stretch: told the name and the seconds of each stretch as it begins.
    """
    pool = Pool(made.list_workers()[0].pool)
    tenants = [tenant for stretch in STRETCHES for tenant in stretch.num_clients]
    with operator_of(made) as operator:
        metadata: dict[str, Metadata] = {tenant: bearer(operator.make_key(tenant)) for tenant in set(tenants)}
    addresses = [router.address for router in made.routers]
    outcomes: list[Outcome] = []
    async with LineWatch(made.redis.url, pool.name) as line:
        room = RoomWatch(made.redis.url, pool.name, lambda: line.num_admitted)
        sampling = asyncio.create_task(room.run())
        crowd = Crowd(addresses, metadata, line, plan.seed)
        for stretch in STRETCHES:
            seconds = stretch.share * plan.seconds
            on_stretch(stretch.name, seconds)
            outcomes.append(await run_stretch(stretch, seconds, crowd))
        assert line.running, "nobody watched the line to the end"
        assert not sampling.done(), "nobody watched the room to the end"
        sampling.cancel()
        differences = await _differences(made, metadata[_LOAD])
    with operator_of(made) as operator:
        operator.revoke_all()
    left = await _left_over(made, pool)
    return Report(plan.seed, outcomes, line, room, QUEUE_LENGTH, NUM_LANES, [*differences, *left])


async def _differences(made: Runtime, metadata: Metadata) -> list[str]:
    """With every lane taken: what the ledger, the workers and the sessions do not agree on."""
    async with grpc.aio.insecure_channel(made.address) as channel:
        stub = runtime_pb2_grpc.RuntimeServiceStub(channel)
        create = api.CreateSessionRequest(ttl_seconds=60)
        sessions = [
            await stub.CreateSession(create, timeout=_CALL_SECONDS, metadata=metadata) for _ in range(NUM_LANES)
        ]
        found = await asyncio.to_thread(_count, made, sum(session.reserved_bytes for session in sessions))
        for session in sessions:
            close = api.CloseSessionRequest(session_id=session.session_id)
            await stub.CloseSession(close, timeout=_CALL_SECONDS, metadata=metadata)
    return found


def _count(made: Runtime, expected_bytes: int) -> list[str]:
    reserved_bytes = sum(worker.reserved_bytes for worker in made.list_workers())
    held_bytes = 0
    for worker in made.workers:
        with grpc.insecure_channel(worker.address) as channel:
            slab = VerifierServiceStub(channel).GetSlab(GetSlabRequest(), timeout=_CALL_SECONDS)
            held_bytes += slab.num_lanes_in_use * slab.lane_bytes
    if expected_bytes == reserved_bytes == held_bytes:
        return []
    return [f"sessions reserve {expected_bytes} bytes, the ledger says {reserved_bytes}, the workers {held_bytes}"]


async def _left_over(made: Runtime, pool: Pool) -> list[str]:
    deadline = time.monotonic() + _LEFTOVER_SECONDS
    while (found := await asyncio.to_thread(leftovers, made, pool)) and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
    return [f"left over: {what}" for what in found]
