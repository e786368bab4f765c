"""What a call costs the router, beside the router of another commit.

    python -m tests.benchmarks.router_cost --base COMMIT [--pairs N] [--calls N] [--json FILE]

Both trees are installed apart. Two routers, one of each, run side by side on one Redis and one worker without a model,
which answers at once (tests/unit/router/fake_worker.py, in a process of its own); they understand one another's data.
Calls are made one at a time, in groups: of the one router, of the other twice, of the one again. Two equal processes
differ by some percent for as long as they live (addresses), hence several pairs, one after the other, of which every
second one begins with the other router, and an interval over pairs.

What is compared is processor time as the scheduler counts it, so that whoever else is on the machine hardly matters:
the geometric mean of the ratio over pairs. Exits with 1 when the upper end of its 95 % interval is above 1.05 for one
of the calls. How long calls took is told, and judged by nobody.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import redis
from rich.console import Console
from rich.progress import Progress

from kakeya_shared.health_command import check
from kakeya_stubs.admin.v1.admin_pb2 import ListWorkersRequest
from kakeya_stubs.admin.v1.admin_pb2_grpc import AdminServiceStub
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1 import runtime_pb2_grpc
from tests.benchmarks.installed_router import commit_of, install_commit, install_working_tree
from tests.benchmarks.interval import interval_of_mean
from tests.benchmarks.logged_command import CommandFailed, end_of, say
from tests.integration.processes import wait_until
from tests.redis_server import free_port, redis_server

SIDES = ("base", "here")
CALLS = ("CreateSession", "AppendTokens", "Generate")
BOUND = 1.05
NUM_APPENDED = 30
NUM_GENERATED = 64
GROUP = 16
"""Sessions at once; the worker has room for those of both routers."""

_NUM_WARM_GROUPS = 4
_CALL_SECONDS = 30.0
_SETTLE_SECONDS = 0.02  # what goes on after an answer belongs to the calls before it


@dataclass
class Side:
    """One of the routers, and what its calls took.

    Attributes:
        cpu_seconds: by call, the router's processor time of each group.
        wall_seconds: by call, how long each took.
    """

    pid: int
    stub: Any
    cpu_seconds: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in CALLS})
    wall_seconds: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in CALLS})

    def forget(self) -> None:
        for taken in (*self.cpu_seconds.values(), *self.wall_seconds.values()):
            taken.clear()

    async def measure_group(self) -> None:
        """Opens some sessions, appends to each and generates on each."""
        opened: list[str] = []

        async def create(_: int) -> None:
            answer = await self.stub.CreateSession(api.CreateSessionRequest(), timeout=_CALL_SECONDS)
            opened.append(answer.session_id)

        async def append(number: int) -> None:
            request = api.AppendTokensRequest(session_id=opened[number], token_ids=range(NUM_APPENDED))
            await self.stub.AppendTokens(request, timeout=_CALL_SECONDS)

        async def generate(number: int) -> None:
            request = api.GenerateRequest(session_id=opened[number], max_tokens=NUM_GENERATED)
            async for _ in self.stub.Generate(request, timeout=_CALL_SECONDS):
                pass

        for name, call in zip(CALLS, (create, append, generate), strict=True):
            await self._measure(name, call)
        for session_id in opened:
            await self.stub.CloseSession(api.CloseSessionRequest(session_id=session_id), timeout=_CALL_SECONDS)
        await asyncio.sleep(_SETTLE_SECONDS)

    async def _measure(self, name: str, call: Callable[[int], Awaitable[None]]) -> None:
        cpu_before = cpu_seconds(self.pid)
        for number in range(GROUP):
            started = time.perf_counter()
            await call(number)
            self.wall_seconds[name].append(time.perf_counter() - started)
        await asyncio.sleep(_SETTLE_SECONDS)
        self.cpu_seconds[name].append(cpu_seconds(self.pid) - cpu_before)


def cpu_seconds(pid: int) -> float:
    """The processor time of a process (Linux): what its threads' schedstat files say, with threads that have ended."""
    return time.clock_gettime((~pid << 3) | 2)  # its CLOCK_PROCESS_CPUTIME_ID, as clock_getcpuclockid(3) makes it


Pair = tuple[Side, Side]
"""In the order of SIDES."""


async def compare(made: "BenchRuntime", num_groups: int, on_groups: Callable[[], None]) -> Pair:
    """Measures twice as many groups of each router."""
    async with (
        grpc.aio.insecure_channel(made.addresses[0]) as first,
        grpc.aio.insecure_channel(made.addresses[1]) as second,
    ):
        base, here = (
            Side(pid, runtime_pb2_grpc.RuntimeServiceStub(channel))
            for pid, channel in zip(made.pids, (first, second), strict=True)
        )
        one, other = (base, here) if made.base_first else (here, base)
        for _ in range(_NUM_WARM_GROUPS):
            await one.measure_group()
            await other.measure_group()
        base.forget()
        here.forget()
        for _ in range(num_groups):
            for side in (one, other, other, one):
                await side.measure_group()
            on_groups()
    return base, here


@dataclass(frozen=True)
class BenchRuntime:
    """Two routers of one Redis and one worker; addresses and process ids in the order of SIDES."""

    addresses: Sequence[str]
    pids: Sequence[int]
    base_first: bool


@contextmanager
def routers(
    pythons: Sequence[Path], redis_url: str, directory: Path, *, base_first: bool, seed: int
) -> Iterator[BenchRuntime]:
    """Both routers on an empty Redis, and a worker that reports to either.

    Args:
        pythons: of the installed trees.
        directory: of the logs.
        seed: of the hashes of both.
    """
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        client.flushall()
    addresses = [f"127.0.0.1:{free_port()}" for _ in SIDES]
    with ExitStack() as stack:
        pids = {}
        for number in (0, 1) if base_first else (1, 0):
            command = [str(pythons[number]), "-m", "kakeya_router", "--redis", redis_url, "--bind", addresses[number]]
            pids[number] = stack.enter_context(_router(command, addresses[number], directory / SIDES[number], seed))
        worker = [sys.executable, "-m", "tests.benchmarks.worker_without_model", *addresses]
        stack.enter_context(_ended(subprocess.Popen(worker)))
        for address in addresses:
            wait_until(lambda: _has_worker(address), "the worker has joined")  # noqa: B023  # called at once
        yield BenchRuntime(addresses, [pids[0], pids[1]], base_first)


@contextmanager
def _router(command: Sequence[str], address: str, directory: Path, seed: int) -> Iterator[int]:
    """Its process id, once it serves. Raises CommandFailed: it has ended instead."""
    directory.mkdir(exist_ok=True)
    log = directory / "router.log"
    # Nothing of this tree may be found where another was installed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, cwd=directory, env=environment | {"PYTHONHASHSEED": str(seed)}
        )
    with _ended(process):
        wait_until(lambda: process.poll() is not None or check(address) == "SERVING", f"the router serves; see {log}")
        if process.poll() is not None:
            raise CommandFailed(f"the router ended with status {process.returncode}:\n{end_of(log)}")
        yield process.pid


@contextmanager
def _ended(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=20)


def _has_worker(address: str) -> bool:
    with grpc.insecure_channel(address) as channel:
        return len(AdminServiceStub(channel).ListWorkers(ListWorkersRequest(), timeout=5).workers) == 1


def figures(pairs: Sequence[Pair]) -> dict[str, dict[str, Any]]:
    """By call: processor time and p50 in milliseconds, the ratio of the former with its interval, by pair too."""
    found = {}
    for name in CALLS:
        cpu = np.array(
            [[np.sum(side.cpu_seconds[name]) / len(side.wall_seconds[name]) for side in pair] for pair in pairs]
        )
        wall = np.array([[np.median(side.wall_seconds[name]) for side in pair] for pair in pairs])  # [pairs, sides]
        logarithms = np.log(cpu[:, 1] / cpu[:, 0])
        found[name] = {
            "cpu_ms": dict(zip(SIDES, (cpu.mean(axis=0) * 1e3).tolist(), strict=True)),
            "ratio": float(np.exp(logarithms.mean())),
            "interval_95": [float(np.exp(end)) for end in interval_of_mean(logarithms)],
            "ratio_by_pair": np.exp(logarithms).tolist(),
            "bound": BOUND,
            "wall_p50_ms": dict(zip(SIDES, (wall.mean(axis=0) * 1e3).tolist(), strict=True)),
        }
    return found


def is_kept(found: Mapping[str, Any]) -> bool:
    return bool(found["interval_95"][1] <= found["bound"])


def show(found: Mapping[str, Mapping[str, Any]], console: Console) -> None:
    for name, each in found.items():
        cpu, wall, (low, high) = each["cpu_ms"], each["wall_p50_ms"], each["interval_95"]
        console.print(
            f"{name:14} router's processor time {cpu['base']:.3f} ms at the base, {cpu['here']:.3f} ms here: "
            f"{each['ratio']:.3f} of it (95 %: {low:.3f} to {high:.3f}; bound: {each['bound']:g}, "
            f"{'kept' if is_kept(each) else 'BROKEN'}); p50 {wall['base']:.3f} and {wall['here']:.3f} ms"
        )


def measure(pythons: Sequence[Path], directory: Path, *, num_pairs: int, num_groups: int) -> list[Pair]:
    """One pair after the other, each on an empty Redis."""
    pairs = []
    with redis_server() as store, Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("measuring", total=num_pairs * num_groups)
        for number in range(num_pairs):
            with routers(pythons, store.url, directory, base_first=number % 2 == 0, seed=number) as made:
                pairs.append(asyncio.run(compare(made, num_groups, lambda: progress.advance(bar))))
    return pairs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", required=True, help="the commit to compare with what is here")
    parser.add_argument("--pairs", type=int, default=12, help="of routers, one after the other (default: 12)")
    parser.add_argument("--calls", type=int, default=256, help="of each kind on each router of a pair (default: 256)")
    parser.add_argument("--json", type=Path, default=None, help="where to write the numbers")
    arguments = parser.parse_args()
    num_groups = max(1, arguments.calls // (2 * GROUP))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        try:
            commit = commit_of(arguments.base)
            say(f"installing the routers of {commit[:12]} and of this tree")
            pythons = install_commit(commit, directory / "base"), install_working_tree(directory / "here")
            pairs = measure(pythons, directory, num_pairs=arguments.pairs, num_groups=num_groups)
        except CommandFailed as error:
            sys.exit(f"error: {error}")
    found = figures(pairs)
    show(found, Console(width=250))
    if arguments.json:
        facts = {"base": commit, "pairs": len(pairs), "calls_per_pair": 2 * num_groups * GROUP, **found}
        arguments.json.write_text(json.dumps(facts, indent=2) + "\n")
    return 0 if all(map(is_kept, found.values())) else 1


if __name__ == "__main__":
    sys.exit(main())
