"""GetSessionInfo and health while the same worker prefills 4,000 tokens, beside the same on an idle worker.

Exits with 1 when a call took over 100 ms, the contract's bound.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

import kakeya
from kakeya_bench.report.quantities import Seconds
from kakeya_bench.report.verdict import at_most
from kakeya_bench.rivals.checkpoint import SMALL, save_random_qwen3
from kakeya_bench.statistics.distribution import distribution
from kakeya_shared.settings.service import setting
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchSettings, Found, Stage
from tests.integration.processes import runtime

BOUND_SECONDS = 0.1
PAUSE_SECONDS = 0.01
IDLE_SECONDS = 3.0
SHAPE = {**SMALL, "vocab_size": 512, "num_hidden_layers": 8, "max_position_embeddings": 4096}

Probes = Mapping[str, Callable[[], Awaitable[object]]]
"""Calls whose latency is measured, by name."""


class LatencySettings(BenchSettings):
    tokens: int = setting(4_000, "length of the prefill", unit="tokens", reason="many seconds", metavar="N", ge=1)


async def latencies(probes: Probes, until: Callable[[], bool]) -> dict[str, list[float]]:
    """In seconds, of each probe, called in turn until `until` holds."""
    found: dict[str, list[float]] = {name: [] for name in probes}
    while not until():
        for name, call in probes.items():
            started = time.perf_counter()
            await call()
            found[name].append(time.perf_counter() - started)
        await asyncio.sleep(PAUSE_SECONDS)
    return found


async def calls(router: str, worker: str, num_tokens: int) -> tuple[dict[str, dict[str, list[float]]], float]:
    """Latencies idle and busy, and the seconds of the prefill."""
    async with (
        kakeya.AsyncClient(router) as client,
        await client.create_session() as session,
        grpc.aio.insecure_channel(router) as router_channel,
        grpc.aio.insecure_channel(worker) as worker_channel,
    ):
        health = {"router health": _health(router_channel), "worker health": _health(worker_channel)}
        probes = {"GetSessionInfo": session.info, **health}
        await session.append(range(64))  # warm
        ends = time.monotonic() + IDLE_SECONDS
        idle = await latencies(probes, lambda: time.monotonic() > ends)
        prefill = asyncio.create_task(session.append([token % 512 for token in range(num_tokens)]))
        busy = await latencies(probes, prefill.done)
        return {"idle": idle, "busy": busy}, (await prefill).prefill_seconds


def _health(channel: grpc.aio.Channel) -> Callable[[], Awaitable[object]]:
    stub = health_pb2_grpc.HealthStub(channel)
    return lambda: stub.Check(health_pb2.HealthCheckRequest())


@bench.command(LatencySettings)
def measure(settings: LatencySettings, stage: Stage) -> Found:
    model = save_random_qwen3(stage.directory / "model", **SHAPE)
    with runtime(model, stage.directory, num_workers=0) as made:
        made.start_worker("--window", "1024", "--threads", "2", lanes=2)
        made.wait_for_workers(1)
        stage.show(0.1, f"calls beside a prefill of {settings.tokens:,} tokens")
        taken, prefill_seconds = asyncio.run(calls(made.address, made.workers[0].address, settings.tokens))
    rows = [
        {"call": name, "worker": state, "calls": len(each), "ms": distribution(seconds * 1e3 for seconds in each)}
        for state, probes in taken.items()
        for name, each in probes.items()
    ]
    document = {"tokens": settings.tokens, "prefill_seconds": prefill_seconds, "calls": rows}
    worst = Seconds(max(map(max, taken["busy"].values())))
    return document, [at_most("slowest call", "during the prefill", worst, Seconds(BOUND_SECONDS))]
