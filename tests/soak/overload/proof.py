"""A stretch of overload, two of unequal tenants, and a census at the end."""

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import grpc

from kakeya_shared.settings.service import setting
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1 import runtime_pb2_grpc
from kakeya_stubs.worker.v1.verifier_pb2 import GetSlabRequest
from kakeya_stubs.worker.v1.verifier_pb2_grpc import VerifierServiceStub
from tests.integration.credentials import operator_of
from tests.integration.processes import Runtime, asking_for_keys, bearer, runtime
from tests.random_checkpoint import save_random_checkpoint
from tests.soak.overload.clients import WAYS, Experience, Metadata, OverloadClient
from tests.soak.overload.watches import LineWatch, RoomWatch
from tests.soak.progress import Progress
from tests.soak.proof import SeededProof
from tests.soak.report import Report
from tests.soak.run import Run, until_told

_NUM_WORKERS, _LANES_PER_WORKER = 2, 4
_NUM_LANES = _NUM_WORKERS * _LANES_PER_WORKER
_QUEUE_LENGTH = 2 * _NUM_LANES  # of the three times as many that would stand in it
_ROUTER_FLAGS = (
    *(f"--queue-length={_QUEUE_LENGTH}", "--queue-seconds=10", "--session-ttl-seconds=5"),
    *("--reap-interval-seconds=0.2", "--heartbeat-interval-seconds=0.2"),
)
_LOAD, _MODEST, _OTHER, _GREEDY = "load", "modest", "other", "greedy"
_LEFTOVER_SECONDS = 20.0
_CALL_SECONDS = 10.0
# How long nobody may get in beside a free lane and somebody who waits; no machine is busy enough to excuse the second.
_MISSED_BOUND_SECONDS, _FORGOTTEN_SECONDS = 2.0, 8.0
_FAIRNESS_BOUND = 1.5  # the modest tenant's mean wait beside the greedy one, as a multiple of that beside its equal


@dataclass
class _Stretch:
    """Of load, and what became of it.

    Attributes:
        share: of the run's time.
        num_clients: by tenant.
        vanish: whether some clients leave while they wait.
        seen: by tenant.
        byte_seconds: by tenant: reserved bytes times how long they were, until the clients were told to stop.
    """

    name: str
    share: float
    num_clients: Mapping[str, int]
    vanish: bool = False
    seen: dict[str, Experience] = field(default_factory=dict)
    byte_seconds: Mapping[str, float] = field(default_factory=dict)


def _stretches() -> list[_Stretch]:
    """Both tenants of the second wait for a lane half of the time; in the third one has ten times the clients."""
    return [
        _Stretch("overload", 0.5, {_LOAD: 4 * _NUM_LANES}, vanish=True),
        _Stretch("symmetric", 0.25, {_MODEST: _NUM_LANES, _OTHER: _NUM_LANES}),
        _Stretch("greedy", 0.25, {_MODEST: _NUM_LANES, _GREEDY: 10 * _NUM_LANES}),
    ]


class Overload(SeededProof):
    """Four times the clients that there is room for, and tenants of unequal size, on a runtime of real processes. Exits
    with 1 when the line grew beyond its bound, somebody was overtaken, a free lane stayed free beside somebody who
    waited, a refusal did not say when to come back, or anything was left at the end.
    """

    SEED: ClassVar = "OVERLOAD_SEED"
    model_config = SeededProof.named("overload")

    seconds: float = setting(
        300.0, "of all stretches together", unit="seconds", reason="each client gets in many times", gt=0
    )

    def prove(self, directory: Path, progress: Progress) -> Report:
        """Two routers and a few lanes."""
        model, environment = save_random_checkpoint(directory / "random"), asking_for_keys()
        with runtime(model, directory, num_workers=0, router_flags=_ROUTER_FLAGS, environment=environment) as made:
            made.start_router(*_ROUTER_FLAGS)
            for _ in range(_NUM_WORKERS):
                made.start_worker(lanes=_LANES_PER_WORKER)
            made.wait_for_workers(_NUM_WORKERS)
            return asyncio.run(OverloadRun(self, made, progress).run())


class OverloadRun(Run):
    def __init__(self, asked: Overload, made: Runtime, progress: Progress) -> None:
        super().__init__(made, progress)
        began, self._asked = time.monotonic(), asked
        self.begin(asked.seconds, "seconds", lambda: time.monotonic() - began)
        self._stretches = _stretches()
        self._line = LineWatch(made.redis.url, self.pool.name, self.tally, queue_length=_QUEUE_LENGTH)
        self._room = RoomWatch(made.redis.url, self.pool.name, lambda: self._line.num_admitted)

    async def run(self) -> Report:
        with operator_of(self.made) as operator:
            self._metadata = {tenant: bearer(operator.make_key(tenant)) for tenant in (_LOAD, _MODEST, _OTHER, _GREEDY)}
        async with self._line:
            sampling = asyncio.create_task(self._room.run())
            for stretch in self._stretches:
                self.progress.what = stretch.name
                await self._go(stretch)
            assert self._line.running, "nobody watched the line to the end"
            assert not sampling.done(), "nobody watched the room to the end"
            sampling.cancel()
            await self._compare(self._metadata[_LOAD])
        with operator_of(self.made) as operator:
            operator.revoke_all()
        await asyncio.to_thread(self.leave_nothing, _LEFTOVER_SECONDS)
        self._check_that_it_was_tested()
        return self._report()

    async def _go(self, stretch: _Stretch) -> None:
        line, routers, ways = self._line, self.made.routers, list(WAYS)
        stretch.seen = {tenant: Experience(self.tally) for tenant in stretch.num_clients}
        clients = [
            OverloadClient(
                routers[number % len(routers)].address,
                self._metadata[tenant],
                stretch.seen[tenant],
                lambda: line.num_admitted,
                random.Random(f"{self._asked.seed}/{stretch.name}/{tenant}/{number}"),
                first_way=ways[number % len(ways)] if stretch.vanish else None,
            )
            for tenant, num_clients in stretch.num_clients.items()
            for number in range(num_clients)
        ]
        async with until_told([client.run for client in clients]):
            line.byte_seconds.clear()
            await asyncio.sleep(stretch.share * self._asked.seconds)
            stretch.byte_seconds = dict(line.byte_seconds)

    async def _compare(self, metadata: Metadata) -> None:
        """With every lane taken the ledger, the workers and the sessions agree."""
        options: dict[str, Any] = {"timeout": _CALL_SECONDS, "metadata": metadata}
        async with grpc.aio.insecure_channel(self.made.address) as channel:
            stub = runtime_pb2_grpc.RuntimeServiceStub(channel)
            create = api.CreateSessionRequest(ttl_seconds=60)
            sessions = [await stub.CreateSession(create, **options) for _ in range(_NUM_LANES)]
            await asyncio.to_thread(self._count, sum(session.reserved_bytes for session in sessions))
            for session in sessions:
                await stub.CloseSession(api.CloseSessionRequest(session_id=session.session_id), **options)

    def _count(self, expected_bytes: int) -> None:
        reserved_bytes = sum(worker.reserved_bytes for worker in self.made.list_workers())
        held_bytes = 0
        for worker in self.made.workers:
            with grpc.insecure_channel(worker.address) as channel:
                slab = VerifierServiceStub(channel).GetSlab(GetSlabRequest(), timeout=_CALL_SECONDS)
                held_bytes += slab.num_lanes_in_use * slab.lane_bytes
        if not expected_bytes == reserved_bytes == held_bytes:
            says = f"the ledger says {reserved_bytes}, the workers {held_bytes}"
            self.tally.violate(f"sessions reserve {expected_bytes} bytes, {says}")

    def _check_that_it_was_tested(self) -> None:
        """What must have happened for the rest to mean anything."""
        crowd = self._stretches[0].seen[_LOAD]
        unmet = {
            "nobody was refused, so nobody honoured RetryInfo": not crowd.refusals,
            "nobody who was refused got in later": max(crowd.num_attempts, default=0) < 2,
            "hardly anybody waited in the line": self._line.num_waited < _NUM_LANES,
            "nobody vanished": not all(crowd.ways[way] for way in ("cancels", "times out", "breaks")),
        }
        self.tally.violate(*(what for what, is_unmet in unmet.items() if is_unmet))

    def _too_much(self, missed_seconds: float, fairness: float, what: str) -> list[str]:
        """What is beyond these bounds: of the time without anybody getting in, and of fairness, counted in so much."""
        found = []
        if self._room.longest_missed_seconds > missed_seconds:
            found.append(f"nobody got in for {self._room.longest_missed_seconds:.2f} s beside a free lane")
        if fairness > _FAIRNESS_BOUND:
            found.append(f"the modest tenant waits for {fairness:.2f} times the {what} beside the greedy one")
        return found

    def _report(self) -> Report:
        line, room = self._line, self._room
        symmetric, greedy = (stretch.seen[_MODEST] for stretch in self._stretches[1:])
        # Counted in sessions that anybody got meanwhile; how fast the machine is does not matter to that.
        fairness = fmean(greedy.waits_in_sessions) / fmean(symmetric.waits_in_sessions)
        fairness_in_seconds = fmean(greedy.waits) / fmean(symmetric.waits)
        self.tally.violate(*self._too_much(_FORGOTTEN_SECONDS, fairness, "sessions"))
        facts = {
            "seed": self._asked.seed,
            "lanes": _NUM_LANES,
            "queue_length": _QUEUE_LENGTH,
            "longest_line": room.longest_line,
            "samples": room.num_samples,
            "longest_missed_seconds": round(room.longest_missed_seconds, 3),
            "longest_missed_seconds_bound": _MISSED_BOUND_SECONDS,
            "admitted": line.num_admitted,
            "admitted_from_line": line.num_waited,
            "fairness": round(fairness, 3),
            "fairness_in_seconds": round(fairness_in_seconds, 3),
            "fairness_bound": _FAIRNESS_BOUND,
            "stretches": {stretch.name: self._numbers(stretch) for stretch in self._stretches},
        }
        return self.report(facts, late=self._too_much(_MISSED_BOUND_SECONDS, fairness_in_seconds, "seconds"))

    def _numbers(self, stretch: _Stretch) -> dict[str, dict[str, Any]]:
        seconds, whole = stretch.share * self._asked.seconds, sum(stretch.byte_seconds.values())
        return {
            tenant: {"clients": stretch.num_clients[tenant]}
            | experience.as_json(seconds)
            | {"share_of_lanes": round(stretch.byte_seconds[tenant] / whole, 3)}
            for tenant, experience in stretch.seen.items()
        }
