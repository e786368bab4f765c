"""Workers without a model, many in one process: they join, beat and report lanes by the worker's own code, each over a
connection of its own, and open and close lanes for whoever asks. They share ten addresses, so that a router soon has
connections to all of them, as one that has run for a while.

python -m tests.benchmarks.fleet.stand_ins ROUTER REDIS_URL NUM_WORKERS [RESTART_SECONDS]

Each has 64 lanes of idle sessions, of which one in twenty changes from one heartbeat to the next, and as many free.
Told to by SIGUSR1, all of them restart one after the other within RESTART_SECONDS: each says that it shuts down, waits
until the router has parked its sessions, leaves, and joins as another incarnation, whose lanes are free.
Its lines are JSON: {"joined_seconds": ...} once all have joined, {"lanes": ...} once Redis has their sessions,
{"restarted_seconds": ..., "kept": ...} once all have restarted, with the lanes that no router had taken away.
"""

import asyncio
import json
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import grpc
from redis.asyncio import Redis

from kakeya_router.store.keys import PoolKeys
from kakeya_router.store.session_record import Epoch, Incarnation, PoolName, SessionId, SessionRecord, State, WorkerId
from kakeya_shared.process import logs
from kakeya_shared.rpc.tls import open_channel
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from kakeya_stubs.worker.v1 import verifier_pb2_grpc
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.lane_state import LaneState
from kakeya_worker.engine.lanes.lane_table import LaneReport, SlabTotals
from kakeya_worker.joining.registration import Registration
from kakeya_worker.joining.router_link import RouterLink
from kakeya_worker.joining.worker_identity import WorkerIdentity

POOL, MODEL = PoolName("scale"), "Scale"
NUM_BUSY, NUM_LANES = 64, 128
_CHANGED = 0.05
_GRACE_SECONDS = 60.0  # as in a cluster; a worker that is told nothing else has 5
_NUM_ADDRESSES = 10
_SINK, _WINDOW, _HISTORY, _TOKEN_BYTES = 4, 1020, 100, 1024
_LANE_BYTES = (_SINK + _WINDOW) * _TOKEN_BYTES
_FACTS = SimpleNamespace(
    backend="none",
    kv_dtype="float32",
    weights="int8",
    fingerprint="f",
    exact=True,
    vocab_size=1000,
    tokenizer_digest="",
    model_digest="m",
)

T = TypeVar("T")


class OwnLink(RouterLink):
    """As processes of their own have it: each worker a connection."""

    def open(self, address: str) -> grpc.aio.Channel:
        return open_channel(address, None, [("grpc.use_local_subchannel_pool", 1)])


@dataclass
class Lanes:
    """What a worker's engine says of its lanes, of which none is held at first."""

    worker_id: str
    held: list[LaneReport] = field(default_factory=list)
    geometry: Any = field(default_factory=lambda: SimpleNamespace(sink=_SINK, window=_WINDOW))
    revision: int = NUM_BUSY

    def to_hold(self) -> list[LaneReport]:
        state = LaneState(_HISTORY, _HISTORY * _TOKEN_BYTES, (range(_HISTORY),))
        name = f"{POOL}.{self.worker_id}"
        return [LaneReport(f"{name}-{number}", 1, state, number + 1, number) for number in range(NUM_BUSY)]

    def reports(self, after_revision: int = 0) -> tuple[LaneReport, ...]:
        for number, report in enumerate(self.held):
            if after_revision and random.random() < _CHANGED:
                self.revision += 1
                self.held[number] = replace(report, revision=self.revision)
        return tuple(report for report in self.held if report.revision > after_revision)

    def drop(self, session_id: str) -> None:
        self.held = [report for report in self.held if report.session_id != session_id]

    def totals(self) -> SlabTotals:
        live = len(self.held) * _HISTORY * _TOKEN_BYTES
        return SlabTotals(NUM_LANES * _LANE_BYTES, _LANE_BYTES, NUM_LANES, len(self.held), live, _TOKEN_BYTES)


class StandIn:
    """What joining asks of an engine."""

    prefill_tokens_per_second = 1000.0

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.facts = _FACTS

    def reset(self) -> "Future[None]":
        self.lanes.held = []
        return _done(None)

    def close(self, session_id: str, _epoch: int) -> "Future[int]":
        self.lanes.drop(session_id)
        return _done(_HISTORY)


def _done(value: T) -> "Future[T]":
    done: Future[T] = Future()
    done.set_result(value)
    return done


class Verifier(verifier_pb2_grpc.VerifierServiceServicer):
    """Of all of them: whichever is asked has a lane. Snapshots are said to be written."""

    def __init__(self, lanes: Mapping[str, Lanes]) -> None:
        self._lanes = lanes  # by worker

    async def OpenSession(self, request: pb.OpenSessionRequest, context: Any) -> pb.OpenSessionResponse:
        return pb.OpenSessionResponse(lane=pb.LaneState(), sink=_SINK, window=_WINDOW)

    async def CloseSession(self, request: pb.CloseSessionRequest, context: Any) -> pb.CloseSessionResponse:
        worker_id = request.session_id.removeprefix(f"{POOL}.").rpartition("-")[0]
        if (lanes := self._lanes.get(worker_id)) is not None:  # else a client has opened it
            lanes.drop(request.session_id)
        return pb.CloseSessionResponse()

    async def WriteSnapshot(self, request: pb.WriteSnapshotRequest, context: Any) -> pb.WriteSnapshotResponse:
        name = f"{request.prefix}-{_HISTORY}.safetensors"
        return pb.WriteSnapshotResponse(name=name, length=_HISTORY, size_bytes=_HISTORY * _TOKEN_BYTES)

    async def GetSlab(self, request: pb.GetSlabRequest, context: Any) -> pb.GetSlabResponse:
        return pb.GetSlabResponse()


def session(registration: Registration, report: LaneReport) -> SessionRecord:
    """That has this lane."""
    return SessionRecord(
        session_id=SessionId(report.session_id),
        pool=POOL,
        state=State.OPEN,
        model=MODEL,
        worker_id=WorkerId(registration.identity.worker_id),
        incarnation=Incarnation(registration.incarnation),
        address=registration.identity.address,
        epoch=Epoch(report.epoch),
        sink=_SINK,
        window=_WINDOW,
        vocab_size=1000,
        reserved_bytes=_LANE_BYTES,
        ttl_ms=86_400_000,
        history_length=_HISTORY,
        journal_length=_HISTORY,
        kv_live_bytes=report.state.kv_live_bytes,
        idle_since_ms=round(time.time() * 1000),
    )


async def hold_lanes(redis: "Redis", registration: Registration, reports: Sequence[LaneReport]) -> None:
    """Has Redis know the sessions of a worker's lanes, as if routers had opened them."""
    keys = PoolKeys(POOL)
    pipe, far = redis.pipeline(transaction=False), round(time.time() * 1000) + 86_400_000
    for report in reports:
        record = session(registration, report)
        pairs = [int(each) if isinstance(each, bool) else str(each) for each in record.to_pairs()]
        pipe.execute_command("HSET", keys.session(record.session_id), *pairs)
        pipe.zadd(keys.expiry, {record.session_id: far})
        pipe.zadd(keys.idle, {record.session_id: record.idle_since_ms})
        pipe.sadd(keys.sessions(record.incarnation), record.session_id)
    number = len(reports)
    live = number * _HISTORY * _TOKEN_BYTES
    ledger: Any = {"reserved_bytes": number * _LANE_BYTES, "num_sessions": number, "kv_live_bytes": live}
    pipe.hset(keys.worker(WorkerId(registration.identity.worker_id)), mapping=ledger)
    pipe.hincrby(keys.usage, "|sessions", number)
    pipe.hincrby(keys.usage, "|bytes", number * _LANE_BYTES)
    await pipe.execute()


class Member:
    """A worker of the fleet, in its present incarnation.

    Args:
        tasks: in which it runs; an error of one ends all.
    """

    def __init__(self, identity: WorkerIdentity, router: str, tasks: asyncio.TaskGroup) -> None:
        self.identity, self.lanes = identity, Lanes(identity.worker_id)
        self._router, self._tasks = router, tasks
        self.begin()

    def begin(self) -> None:
        engine = cast(Engine, StandIn(self.lanes))
        self.registration = Registration(engine, self.identity, [self._router], OwnLink())
        self.running = self._tasks.create_task(self.registration.run())

    async def restart(self) -> int:
        """As a worker does that is told to end. Returns how many lanes no router has taken away."""
        await self.registration.announce_draining(_GRACE_SECONDS)
        ends_at = time.monotonic() + _GRACE_SECONDS
        while self.lanes.held and time.monotonic() < ends_at:
            await asyncio.sleep(0.1)
        num_kept, self.lanes.held = len(self.lanes.held), []
        self.running.cancel()
        await asyncio.wait([self.running])
        await self.registration.leave()
        self.begin()
        await self.registration.joined.wait()
        return num_kept


async def restart_all(members: Sequence[Member], seconds: float, asked: asyncio.Event) -> None:
    """Once it is asked for."""
    await asked.wait()
    began, restarts = time.monotonic(), []
    for place, member in enumerate(members):
        await asyncio.sleep(max(0.0, began + seconds * place / len(members) - time.monotonic()))
        restarts.append(asyncio.create_task(member.restart()))
    num_kept = sum(await asyncio.gather(*restarts))
    say(restarted_seconds=time.monotonic() - began, kept=num_kept)


@asynccontextmanager
async def serving(number: int, lanes: Mapping[str, Lanes]) -> AsyncIterator[list[str]]:
    """So many addresses, at which lanes are opened."""
    server = grpc.aio.server()
    verifier_pb2_grpc.add_VerifierServiceServicer_to_server(Verifier(lanes), server)
    addresses = [f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}" for _ in range(number)]
    await server.start()
    try:
        yield addresses
    finally:
        await server.stop(0)


def say(**what: float) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


async def main(router: str, url: str, number: int, restart_seconds: float) -> None:
    stop, restart = asyncio.Event(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, restart.set)
    lanes: dict[str, Lanes] = {}
    async with AsyncExitStack() as stack:
        addresses = await stack.enter_async_context(serving(_NUM_ADDRESSES, lanes))
        redis = await stack.enter_async_context(Redis.from_url(url))
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        began = time.monotonic()
        members = [
            Member(
                WorkerIdentity(
                    *(f"worker-{place:04d}", POOL, MODEL, addresses[place % _NUM_ADDRESSES]),
                    num_threads=1,
                    snapshot_store="s",
                ),
                router,
                tasks,
            )
            for place in range(number)
        ]
        lanes |= {member.identity.worker_id: member.lanes for member in members}
        for member in members:
            await member.registration.joined.wait()
        say(joined_seconds=time.monotonic() - began)
        for member in members:
            await hold_lanes(redis, member.registration, held := member.lanes.to_hold())
            member.lanes.held = held
        say(lanes=number * NUM_BUSY)
        restarting = tasks.create_task(restart_all(members, restart_seconds, restart))
        await stop.wait()
        for task in (restarting, *(member.running for member in members)):
            task.cancel()


if __name__ == "__main__":
    logs.configure("worker", "error")
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]) if sys.argv[4:] else 0.0))
