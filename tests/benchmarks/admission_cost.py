"""What keys, quotas and the queue cost a call that is let in.

    python -m tests.benchmarks.admission_cost [--calls N] [--json FILE]

Two routers side by side on one Redis and one worker: one asks for no keys and refuses where there is no room, the
other asks for keys, has quotas set and queues. Calls alternate between them, and so does which comes first. The worker
has no model (tests/unit/router/fake_worker.py, in a process of its own): a forward pass takes many times as long as
what is to be measured here, and varies by more than that.

Exits with 1 when the medians differ by more than 1 ms (CreateSession) or 0.2 ms (Generate of one token).
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from rich.console import Console
from rich.progress import Progress

from kakeya_stubs.admin.v1.admin_pb2 import Quota
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1 import runtime_pb2_grpc
from tests.integration.credentials import operator_of
from tests.integration.processes import Runtime, asking_for_keys, bearer
from tests.redis_server import redis_server

BOUND_MS = {"CreateSession": 1.0, "Generate": 0.2}
QUOTA = Quota(max_sessions=1_000, max_reserved_bytes=1 << 40, tokens_per_minute=1 << 40)
_OPEN_FLAGS = ("--auth=none", "--admission=reject")
_KEYED_FLAGS = ("--auth=keys", "--admission=queue", "--key-max-sessions=1000")
_NUM_WARM = 50
_CALL_SECONDS = 30.0
_NUM_RESAMPLES = 1_000


@dataclass
class Side:
    """One of the routers.

    Attributes:
        seconds: by call, how long each took.
    """

    name: str
    stub: Any
    metadata: tuple[tuple[str, str], ...]
    session_id: str = ""
    seconds: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in BOUND_MS})

    async def prepare(self) -> None:
        """A session with some history, for Generate."""
        self.session_id = (await self._create()).session_id
        append = api.AppendTokensRequest(session_id=self.session_id, token_ids=range(8))
        await self.stub.AppendTokens(append, timeout=_CALL_SECONDS, metadata=self.metadata)

    async def measure(self) -> None:
        created = await self._timed("CreateSession", self._create)
        await self._timed("Generate", self._generate)
        await self._close(created.session_id)

    async def finish(self) -> None:
        await self._close(self.session_id)

    async def _timed(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        started = time.perf_counter()
        answer = await call()
        self.seconds[name].append(time.perf_counter() - started)
        return answer

    async def _create(self) -> api.CreateSessionResponse:
        return await self.stub.CreateSession(api.CreateSessionRequest(), timeout=_CALL_SECONDS, metadata=self.metadata)

    async def _generate(self) -> None:
        request = api.GenerateRequest(session_id=self.session_id, max_tokens=1)
        async for _ in self.stub.Generate(request, timeout=_CALL_SECONDS, metadata=self.metadata):
            pass

    async def _close(self, session_id: str) -> None:
        request = api.CloseSessionRequest(session_id=session_id)
        await self.stub.CloseSession(request, timeout=_CALL_SECONDS, metadata=self.metadata)


async def compare(routers: list[str], key: str, num_calls: int, on_call: Callable[[int], None]) -> list[Side]:
    async with grpc.aio.insecure_channel(routers[0]) as first, grpc.aio.insecure_channel(routers[1]) as second:
        sides = [
            Side("open", runtime_pb2_grpc.RuntimeServiceStub(first), ()),
            Side("keyed", runtime_pb2_grpc.RuntimeServiceStub(second), bearer(key)),
        ]
        for side in sides:
            await side.prepare()
        for number in range(_NUM_WARM + num_calls):
            if number == _NUM_WARM:
                for side in sides:
                    side.seconds = {name: [] for name in BOUND_MS}
            for side in sides if number % 2 else reversed(sides):
                await side.measure()
            on_call(number)
        for side in sides:
            await side.finish()
    return sides


@contextmanager
def runtime_without_model(directory: Path) -> Iterator[Runtime]:
    """Both routers, and a worker without a model that joined the one that asks for no token."""
    with redis_server() as redis:
        made = Runtime(redis, directory, directory, asking_for_keys())
        try:
            made.start_router(*_KEYED_FLAGS)
            # A router that asks nobody refuses to be given keys.
            replace(made, environment={}).start_router(*_OPEN_FLAGS)
            worker = subprocess.Popen(
                [sys.executable, "-m", "tests.benchmarks.worker_without_model", made.routers[1].address]
            )
            try:
                made.wait_for_workers(1)
                yield made
            finally:
                worker.terminate()
                worker.wait(timeout=20)
        finally:
            made.stop()


def report(sides: list[Side], console: Console) -> dict[str, Any]:
    """Prints a table; returns its numbers in milliseconds."""
    facts: dict[str, Any] = {}
    for name, bound in BOUND_MS.items():
        medians = {side.name: float(np.median(side.seconds[name])) * 1e3 for side in sides}
        p95 = {side.name: float(np.percentile(side.seconds[name], 95)) * 1e3 for side in sides}
        difference = medians["keyed"] - medians["open"]
        low, high = _interval_ms(*(side.seconds[name] for side in sides))
        verdict = "kept" if difference <= bound else "BROKEN"
        facts[name] = {
            "p50_ms": medians,
            "p95_ms": p95,
            "difference_ms": difference,
            "interval_95_ms": [low, high],
            "bound_ms": bound,
        }
        console.print(
            f"{name:14} p50 {medians['open']:.3f} ms without, {medians['keyed']:.3f} ms with keys, quotas and queue: "
            f"{difference:+.3f} ms (95 %: {low:+.3f} to {high:+.3f}; bound: {bound:g} ms, {verdict}); "
            f"p95 {p95['open']:.3f} and {p95['keyed']:.3f} ms"
        )
    facts["calls"] = len(sides[0].seconds["Generate"])
    return facts


def _interval_ms(without: list[float], with_keys: list[float]) -> tuple[float, float]:
    """The 95 % interval of the difference of the medians, by resampling rounds (bootstrap)."""
    chance = np.random.default_rng(0)
    rounds = np.array([without, with_keys]).T * 1e3  # [rounds, sides]
    medians = [np.median(chance.choice(rounds, len(rounds)), axis=0) for _ in range(_NUM_RESAMPLES)]
    low, high = np.percentile([keyed - open_ for open_, keyed in medians], (2.5, 97.5))
    return float(low), float(high)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=5_000, help="of each kind on each router (default: 5000)")
    parser.add_argument("--json", type=Path, default=None, help="where to write the numbers")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        runtime_without_model(Path(directory)) as made,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        with operator_of(made) as operator:
            key = operator.make_key("bench")
            operator.set_quota("bench", QUOTA)
        bar = progress.add_task("measuring", total=_NUM_WARM + arguments.calls)
        addresses = [made.routers[1].address, made.routers[0].address]
        sides = asyncio.run(
            compare(addresses, key, arguments.calls, lambda number: progress.update(bar, completed=number))
        )
    facts = report(sides, Console(width=200))
    if arguments.json:
        arguments.json.write_text(json.dumps(facts, indent=2) + "\n")
    return 0 if all(facts[name]["difference_ms"] <= bound for name, bound in BOUND_MS.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
