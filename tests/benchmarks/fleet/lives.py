"""What a session's life costs a router and a worker, and how long a new session waits where an idle one is parked for
it; part of `make bench-scale`.

A life: the session is created, 30 tokens are appended, 8 answered, and it is parked, one after the other. The model is
kakeya-nano, whose forward passes count; snapshots are files. Then callers come at once over twice as many lanes and
leave their sessions idle, so that each CreateSession has another session parked first.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from kakeya_bench.compare.processes import cpu_seconds_of
from kakeya_bench.report.quantities import Precise
from kakeya_bench.report.verdict import Verdict, at_most
from kakeya_shared import installed_models
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1 import runtime_pb2_grpc
from tests.integration.processes import START_SECONDS, Runtime, runtime, wait_until

NUM_APPENDED, NUM_ANSWERED = 30, 8
NUM_CALLERS, NUM_LANES = 8, 16
BOUNDS_MS = {"router_ms_a_life": 14.0, "worker_ms_a_life": 14.0, "create_p99_ms_under_pressure": 300.0}
_LONG_SECONDS = 60.0
_QUIET_SECONDS = 0.3  # what goes on after a call belongs to it
_NUM_WARM = 16


@contextmanager
def standing(directory: Path) -> Iterator[Runtime]:
    """A router that parks whom it can at once, and a worker with snapshots."""
    directory.mkdir()
    flags = ("--metrics-bind=none", "--log-level=warning")
    router_flags = (*flags, "--admission=evict-idle", "--close-idle-after-seconds=0")
    model = installed_models.directory("kakeya-nano")
    environment = {"KAKEYA_WORKER_SNAPSHOTS": str(directory / "snapshots")}
    with runtime(model, directory, num_workers=0, router_flags=router_flags, environment=environment) as made:
        made.start_worker(*flags, lanes=NUM_LANES)
        wait_until(lambda: len(made.list_workers()) == 1, "the worker has joined", START_SECONDS)
        yield made


async def create_and_answer(stub: Any) -> tuple[str, float]:
    """The session, and the seconds until it was created."""
    began = time.perf_counter()
    session_id = (await stub.CreateSession(api.CreateSessionRequest(), timeout=_LONG_SECONDS)).session_id
    took = time.perf_counter() - began
    token_ids = range(1, NUM_APPENDED + 1)
    await stub.AppendTokens(api.AppendTokensRequest(session_id=session_id, token_ids=token_ids))
    async for _ in stub.Generate(api.GenerateRequest(session_id=session_id, max_tokens=NUM_ANSWERED, ignore_eos=True)):
        pass
    return session_id, took


async def live(stub: Any, number: int) -> None:
    """So many lives, one after the other."""
    for _ in range(number):
        session_id, _ = await create_and_answer(stub)
        await stub.ParkSession(api.ParkSessionRequest(session_id=session_id))


async def crowd(stub: Any, number: int) -> list[float]:
    """The seconds that each CreateSession took, of so many of each caller."""

    async def come_again() -> list[float]:
        return [(await create_and_answer(stub))[1] for _ in range(number)]

    return [took for each in await asyncio.gather(*(come_again() for _ in range(NUM_CALLERS))) for took in each]


async def measured(made: Runtime, num_lives: int, num_crowded: int, step: Callable[[str], None]) -> dict[str, Any]:
    pids = (made.routers[0].process.pid, made.workers[0].process.pid)
    async with grpc.aio.insecure_channel(made.address) as channel:
        stub = runtime_pb2_grpc.RuntimeServiceStub(channel)
        await live(stub, _NUM_WARM)
        before = [*map(cpu_seconds_of, pids)]
        await live(stub, num_lives)
        await asyncio.sleep(_QUIET_SECONDS)
        router, worker = (cpu_seconds_of(pid) - each for pid, each in zip(pids, before, strict=True))
        step("lives")
        await crowd(stub, NUM_LANES // NUM_CALLERS)  # all lanes are taken then
        waited = await crowd(stub, num_crowded)
        step("pressure")
    p50, p99 = 1e3 * np.percentile(waited, (50, 99))
    return {
        "router_ms_a_life": 1e3 * router / num_lives,
        "worker_ms_a_life": 1e3 * worker / num_lives,
        "create_p50_ms_under_pressure": float(p50),
        "create_p99_ms_under_pressure": float(p99),
    }


def of_lives(directory: Path, num_lives: int, num_crowded: int, step: Callable[[str], None]) -> dict[str, Any]:
    """Milliseconds; see the module.

    Args:
        num_crowded: sessions of each caller.
    """
    with standing(directory) as made:
        return asyncio.run(measured(made, num_lives, num_crowded, step))


def verdicts(found: Mapping[str, Any]) -> list[Verdict]:
    return [at_most(name, "milliseconds", Precise(found[name]), Precise(bound)) for name, bound in BOUNDS_MS.items()]
