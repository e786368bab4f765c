"""A rolling restart of all workers of a fleet, while sessions are created; part of `make bench-scale`.

The workers are stand-ins (tests/benchmarks/fleet/stand_ins.py), which restart one after the other. Meanwhile callers
create sessions, each closed before its next. None may be refused, and none of a worker's sessions left behind.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from kakeya_bench.report.quantities import Precise, Seconds
from kakeya_bench.report.verdict import Verdict, at_most
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1 import runtime_pb2_grpc

NUM_CALLERS = 4
_PAUSE_SECONDS = 0.1
_LONG_SECONDS = 60.0
# Beside the time in which the last workers restart: each waits until its sessions are parked.
_LATE_SECONDS = 60.0


@dataclass
class Created:
    """What callers came to.

    Attributes:
        seconds: of each CreateSession.
        refused: how many, by what they were told.
    """

    seconds: list[float] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    async def call(self, stub: Any, is_over: asyncio.Event) -> None:
        """Creates sessions, as no SDK is there to try anything again."""
        while not is_over.is_set():
            began = time.perf_counter()
            try:
                created = await stub.CreateSession(api.CreateSessionRequest(), timeout=_LONG_SECONDS)
                self.seconds.append(time.perf_counter() - began)
                await stub.CloseSession(api.CloseSessionRequest(session_id=created.session_id), timeout=_LONG_SECONDS)
            except grpc.aio.AioRpcError as error:
                self.refused[f"{error.code().name}: {error.details()}"] += 1
            await asyncio.sleep(_PAUSE_SECONDS)


async def restarted(address: str, restart: Callable[[], Mapping[str, float]]) -> dict[str, Any]:
    """What was measured.

    Args:
        address: of the router.
        restart: has all workers restart, and returns what the stand-ins say once they have.
    """
    created, is_over = Created(), asyncio.Event()
    async with grpc.aio.insecure_channel(address) as channel:
        stub = runtime_pb2_grpc.RuntimeServiceStub(channel)
        callers = [asyncio.create_task(created.call(stub, is_over)) for _ in range(NUM_CALLERS)]
        said = await asyncio.to_thread(restart)
        is_over.set()
        await asyncio.gather(*callers)
    p50, p99 = np.percentile(created.seconds, (50, 99))
    return {
        "restarted": Seconds(said["restarted_seconds"]),
        "lanes_left_behind": said["kept"],
        "created": len(created.seconds),
        "create_p50": Seconds(float(p50)),
        "create_p99": Seconds(float(p99)),
        "refused": sum(created.refused.values()),
        "refusals": dict(created.refused),
    }


def verdicts(found: Mapping[str, Any], seconds: float) -> list[Verdict]:
    """Args: `seconds`: in which all were to restart."""
    within = Seconds(seconds + _LATE_SECONDS)
    return [
        at_most("restart", "all workers restart", found["restarted"], within),
        at_most("left behind", "lanes of workers that ended", Precise(found["lanes_left_behind"]), Precise(0)),
        at_most("refused", "CreateSession meanwhile", Precise(found["refused"]), Precise(0)),
    ]
