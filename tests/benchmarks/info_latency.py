"""GetSessionInfo and health while the same worker prefills 4,000 tokens, beside the same on an idle worker.

    python -m tests.benchmarks.info_latency [--tokens N]

Exits with 1 when a call took over 100 ms, the contract's bound.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc

import kakeya
from tests.checkpoints import save_random_qwen3
from tests.integration.processes import runtime

BOUND_SECONDS = 0.1
PAUSE_SECONDS = 0.01


@dataclass(frozen=True)
class Probe:
    """A call whose latency is measured."""

    name: str
    call: Callable[[], Awaitable[object]]


async def measure(probes: list[Probe], until: Callable[[], bool]) -> dict[str, list[float]]:
    """Latencies in seconds of each probe, called in turn until `until` holds."""
    latencies: dict[str, list[float]] = {probe.name: [] for probe in probes}
    while not until():
        for probe in probes:
            started = time.perf_counter()
            await probe.call()
            latencies[probe.name].append(time.perf_counter() - started)
        await asyncio.sleep(PAUSE_SECONDS)
    return latencies


async def run(router: str, worker: str, num_tokens: int) -> dict[str, dict[str, list[float]]]:
    """Latencies idle and busy."""
    async with (
        kakeya.AsyncClient(router) as client,
        await client.create_session() as session,
        grpc.aio.insecure_channel(router) as router_channel,
        grpc.aio.insecure_channel(worker) as worker_channel,
    ):
        probes = [
            Probe("GetSessionInfo", session.info),
            Probe("router health", _health(router_channel)),
            Probe("worker health", _health(worker_channel)),
        ]
        await session.append(range(64))  # warm
        ends = time.monotonic() + 3
        idle = await measure(probes, lambda: time.monotonic() > ends)
        prefill = asyncio.create_task(session.append([token % 512 for token in range(num_tokens)]))
        busy = await measure(probes, prefill.done)
        seconds = (await prefill).prefill_seconds
    print(
        f"prefill of {num_tokens} tokens took {seconds:.1f} s; {len(busy['GetSessionInfo'])} rounds of calls meanwhile"
    )
    return {"idle": idle, "busy": busy}


def _health(channel: grpc.aio.Channel) -> Callable[[], Awaitable[object]]:
    stub = health_pb2_grpc.HealthStub(channel)
    return lambda: stub.Check(health_pb2.HealthCheckRequest())


def report(latencies: dict[str, dict[str, list[float]]]) -> bool:
    """Prints a table in milliseconds; whether every call kept the bound."""
    print(f"{'call':16} {'worker':6} {'calls':>6} {'p50 ms':>8} {'p95 ms':>8} {'max ms':>8} {'p50 / idle':>11}")
    for name, idle in latencies["idle"].items():
        for state in ("idle", "busy"):
            sample = np.array(latencies[state][name]) * 1e3
            ratio = np.median(sample) / (np.median(idle) * 1e3)
            p50, p95 = np.percentile(sample, [50, 95])
            print(f"{name:16} {state:6} {len(sample):6} {p50:8.2f} {p95:8.2f} {sample.max():8.2f} {ratio:11.2f}")
    worst = max(max(sample) for sample in latencies["busy"].values())
    verdict = "kept" if worst <= BOUND_SECONDS else "BROKEN"
    print(f"slowest call during the prefill: {worst * 1e3:.1f} ms; bound of {BOUND_SECONDS * 1e3:.0f} ms {verdict}")
    return worst <= BOUND_SECONDS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=4_000, help="length of the prefill (default: 4000)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        model = save_random_qwen3(
            Path(directory) / "model",
            hidden_size=512,
            intermediate_size=1536,
            num_hidden_layers=8,
            num_attention_heads=8,
            num_key_value_heads=4,
            head_dim=64,
            max_position_embeddings=4096,
        )
        with runtime(model, Path(directory), num_workers=0) as made:
            made.start_worker("--window", "1024", "--threads", "2", lanes=2)
            made.wait_for_workers(1)
            latencies = asyncio.run(run(made.routers[0].address, made.workers[0].address, arguments.tokens))
    return 0 if report(latencies) else 1


if __name__ == "__main__":
    sys.exit(main())
