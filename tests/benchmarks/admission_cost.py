"""What keys, quotas and the queue cost a call that is let in.

    python -m tests.benchmarks.admission_cost [--pairs N] [--calls N] [--json FILE]

Two routers side by side on one Redis and one worker: one asks for no keys and refuses where there is no room, the
other asks for keys, has quotas set and queues. Calls alternate between them, and so does which comes first. Two equal
processes differ by some percent for as long as they live (hash seed, addresses), which no number of calls would show:
hence several such pairs, one after the other, and an interval over pairs. The worker has no model
(tests/unit/router/fake_worker.py, in a process of its own): a forward pass takes many times as long as what is to be
measured here, and varies by more than that.

Exits with 1 when the medians differ by more than 1 ms (CreateSession) or 0.2 ms (Generate of one token), in the mean
over pairs.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from rich.console import Console
from rich.progress import Progress

from kakeya_stubs.admin.v1.admin_pb2 import Quota
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1 import runtime_pb2_grpc
from tests.benchmarks.interval import interval_of_mean
from tests.integration.credentials import operator_of
from tests.integration.processes import Runtime, asking_for_keys, bearer
from tests.redis_server import redis_server

SIDES = ("open", "keyed")
BOUND_MS = {"CreateSession": 1.0, "Generate": 0.2}
QUOTA = Quota(max_sessions=1_000, max_reserved_bytes=1 << 40, tokens_per_minute=1 << 40)
_OPEN_FLAGS = ("--auth=none", "--admission=reject")
_KEYED_FLAGS = ("--auth=keys", "--admission=queue", "--key-max-sessions=1000")
_NUM_WARM = 100
_CALL_SECONDS = 30.0


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


Pair = tuple[Side, Side]
"""Who calls the open router, and who the one with keys."""


async def compare(made: "BenchRuntime", num_calls: int, on_call: Callable[[], None]) -> Pair:
    async with grpc.aio.insecure_channel(made.open) as first, grpc.aio.insecure_channel(made.keyed) as second:
        sides = (
            Side(SIDES[0], runtime_pb2_grpc.RuntimeServiceStub(first), ()),
            Side(SIDES[1], runtime_pb2_grpc.RuntimeServiceStub(second), bearer(made.key)),
        )
        for side in sides:
            await side.prepare()
        for number in range(_NUM_WARM + num_calls):
            if number == _NUM_WARM:
                for side in sides:
                    side.seconds = {name: [] for name in BOUND_MS}
            for side in sides if number % 2 else reversed(sides):
                await side.measure()
            on_call()
        for side in sides:
            await side.finish()
    return sides


@dataclass(frozen=True)
class BenchRuntime:
    """Addresses of both routers, and a key of a tenant with quotas."""

    open: str
    keyed: str
    key: str


@contextmanager
def runtime_without_model(directory: Path, *, open_first: bool) -> Iterator[BenchRuntime]:
    """Both routers, and a worker without a model that joined the one that asks for no token."""
    open_directory, keyed_directory = directory / "open", directory / "keyed"  # of their logs
    open_directory.mkdir()
    keyed_directory.mkdir()
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server())
        # A router that asks nobody refuses to be given keys.
        open_ = Runtime(redis, directory, open_directory)
        keyed = Runtime(redis, directory, keyed_directory, asking_for_keys())
        stack.callback(open_.stop)
        stack.callback(keyed.stop)
        starts = [lambda: open_.start_router(*_OPEN_FLAGS), lambda: keyed.start_router(*_KEYED_FLAGS)]
        for start in starts if open_first else reversed(starts):
            start()
        worker = subprocess.Popen([sys.executable, "-m", "tests.benchmarks.worker_without_model", open_.address])
        try:
            keyed.wait_for_workers(1)
            with operator_of(keyed) as operator:
                key = operator.make_key("bench")
                operator.set_quota("bench", QUOTA)
            yield BenchRuntime(open_.address, keyed.address, key)
        finally:
            worker.terminate()
            worker.wait(timeout=20)


def report(pairs: Sequence[Pair], console: Console) -> dict[str, Any]:
    """Prints a table; returns its numbers in milliseconds."""
    facts: dict[str, Any] = {"pairs": len(pairs), "calls_per_pair": len(pairs[0][0].seconds["Generate"])}
    for name, bound in BOUND_MS.items():
        milliseconds = (
            np.array([[side.seconds[name] for side in pair] for pair in pairs]) * 1e3
        )  # [pairs, sides, calls]
        medians = np.median(milliseconds, axis=2)  # [pairs, sides]
        differences = medians[:, 1] - medians[:, 0]
        difference = float(differences.mean())
        low, high = interval_of_mean(differences)
        p50, p95 = medians.mean(axis=0), np.percentile(milliseconds, 95, axis=2).mean(axis=0)
        facts[name] = {
            "p50_ms": dict(zip(SIDES, p50.tolist(), strict=True)),
            "p95_ms": dict(zip(SIDES, p95.tolist(), strict=True)),
            "difference_ms": difference,
            "interval_95_ms": [low, high],
            "difference_by_pair_ms": differences.tolist(),
            "bound_ms": bound,
        }
        console.print(
            f"{name:14} p50 {p50[0]:.3f} ms without, {p50[1]:.3f} ms with keys, quotas and queue: {difference:+.3f} ms "
            f"(95 %: {low:+.3f} to {high:+.3f}; pairs {differences.min():+.3f} to {differences.max():+.3f}; "
            f"bound: {bound:g} ms, {'kept' if difference <= bound else 'BROKEN'}); p95 {p95[0]:.3f} and {p95[1]:.3f} ms"
        )
    return facts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10, help="of routers, one after the other (default: 10)")
    parser.add_argument("--calls", type=int, default=600, help="of each kind on each router (default: 600)")
    parser.add_argument("--json", type=Path, default=None, help="where to write the numbers")
    arguments = parser.parse_args()
    pairs = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("measuring", total=arguments.pairs * (_NUM_WARM + arguments.calls))
        for number in range(arguments.pairs):
            with (
                tempfile.TemporaryDirectory() as directory,
                runtime_without_model(Path(directory), open_first=number % 2 == 0) as made,
            ):
                pairs.append(asyncio.run(compare(made, arguments.calls, lambda: progress.advance(bar))))
    facts = report(pairs, Console(width=250))
    if arguments.json:
        arguments.json.write_text(json.dumps(facts, indent=2) + "\n")
    return 0 if all(facts[name]["difference_ms"] <= bound for name, bound in BOUND_MS.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
