"""What a tunnel costs: tokens of a worker that dials out, beside those of one that is dialled.

Two routers, each with a Redis and a worker without a model of its own, whose eight sessions get a token each at the
same moment, forty times a second. The one is dialled; the other keeps a tunnel, whose connections use TLS. They answer
in turn (A B, B A, ...). Told are the time to the first token, and the processor time of router and worker together for
a token. Then a session with a lane of 95 MB is moved between the two kinds of worker, there and back.

Exits with 1 where the median first token comes more than 1.5 ms later, a token costs more than 150 us more, or a lane
moves at less than 150 MB/s at the median.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np

import kakeya
from kakeya_bench.compare.processes import cpu_seconds_of
from kakeya_bench.report.quantities import Precise
from kakeya_bench.report.verdict import Verdict, at_least, at_most
from kakeya_bench.statistics import intervals
from kakeya_shared.settings.service import setting
from kakeya_stubs.admin.v1 import admin_pb2
from kakeya_stubs.admin.v1.admin_pb2_grpc import AdminServiceStub
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchSettings, Found, Stage
from tests.benchmarks.calls.paced_worker import LANE_BYTES
from tests.benchmarks.pairs import in_turn
from tests.certificates import Authority
from tests.integration.processes import Runtime, runtime, wait_until
from tests.scrape import scrape

FIRST_TOKEN_MS, TOKEN_US, LANE_MB = 1.5, 150.0, 150.0
SIDES = ("dialled", "tunnelled")

_NUM_SESSIONS = 8
_STEPS_A_SECOND = 40.0
_NUM_FIRST = 25
_RATE = "MB a second of a lane"


class TunnelSettings(BenchSettings):
    pairs: int = setting(12, "pairs of rounds", reason="five minutes", metavar="N", ge=2)
    tokens: int = setting(200, "tokens of an answer in a round", reason="five seconds of it", metavar="N", ge=1)
    moves: int = setting(10, "pairs of moves of a lane", reason="half a minute", metavar="N", ge=1)


@dataclass
class Side:
    """One of the two runtimes."""

    made: Runtime
    worker: "subprocess.Popen[bytes]"
    client: kakeya.AsyncClient

    async def cpu_seconds(self, num_tokens: int) -> float:
        """Of router and worker, for a token of so many in each of eight answers at once."""
        pids = (self.made.routers[0].process.pid, self.worker.pid)
        async with AsyncExitStack() as stack:
            sessions = [await stack.enter_async_context(await self._session()) for _ in range(_NUM_SESSIONS)]
            before = sum(map(cpu_seconds_of, pids))
            await asyncio.gather(*(_answer(session, num_tokens) for session in sessions))
            return (sum(map(cpu_seconds_of, pids)) - before) / (_NUM_SESSIONS * num_tokens)

    async def first_token_seconds(self) -> float:
        """The median of some answers of one token, less the time until the worker's clock struck."""
        async with await self._session() as session:
            took = []
            for _ in range(_NUM_FIRST):
                began = time.perf_counter()
                await _answer(session, 1)
                took.append(time.perf_counter() - began)
            return float(np.median(took))

    async def _session(self) -> kakeya.AsyncSession:
        session = await self.client.create_session()
        await session.append([1])
        return session


async def _answer(session: kakeya.AsyncSession, num_tokens: int) -> None:
    async with session.generate(max_tokens=num_tokens) as answer:
        assert len([token async for token in answer]) == num_tokens


@contextmanager
def runtimes(directory: Path, steps_a_second: float) -> Iterator[list[tuple[Runtime, "subprocess.Popen[bytes]"]]]:
    """One of each side, with its worker."""
    with ExitStack() as stack:
        made = []
        for name in SIDES:
            one, (process,) = stack.enter_context(
                _runtime(directory / f"{name}-{steps_a_second:g}", steps_a_second, [name])
            )
            made.append((one, process))
        yield made


@contextmanager
def _runtime(
    directory: Path, steps_a_second: float, kinds: Sequence[str], metrics: str = "none"
) -> Iterator[tuple[Runtime, list["subprocess.Popen[bytes]"]]]:
    """With a worker of each of these kinds."""
    directory.mkdir()
    authority = Authority(directory)
    pair = authority.pair("router")
    flags = (f"--metrics-bind={metrics}", f"--tls-cert={pair.cert}", f"--tls-key={pair.key}")
    credentials = kakeya.tls_credentials(ca=authority.path)
    with ExitStack() as stack:
        made = stack.enter_context(
            runtime(directory, directory, num_workers=0, router_flags=flags, credentials=credentials)
        )
        processes = []
        for kind in kinds:
            how = ["--reverse"] if kind == "tunnelled" else []
            command = [sys.executable, "-m", "tests.benchmarks.calls.paced_worker", *how]
            process = subprocess.Popen([*command, str(steps_a_second), str(authority.path), made.address])
            stack.callback(process.wait)
            stack.callback(process.terminate)
            processes.append(process)
        wait_until(lambda: _num_reached(made) == len(kinds), "the workers are reached")
        yield made, processes


def _num_reached(made: Runtime) -> int:
    return sum(bool(worker.address or worker.tunnels) for worker in made.list_workers())


def moved_mb_a_second(directory: Path, num_moves: int, stage: Callable[[str], object]) -> list[float]:
    """Of a lane, by the router's clock: to the one worker and back."""
    with _runtime(directory / "moves", 2_000.0, SIDES, "127.0.0.1:0") as (made, _):
        assert made.credentials is not None
        with (
            grpc.secure_channel(made.address, made.credentials) as channel,
            kakeya.Client(made.address, credentials=made.credentials) as client,
            client.create_session() as session,
        ):
            session.append([1])
            return [_moved_mb_a_second(made, AdminServiceStub(channel), stage) for _ in range(num_moves)]


def _moved_mb_a_second(made: Runtime, admin: Any, stage: Callable[[str], object]) -> float:
    def place() -> str:
        return next(session.worker_id for session in admin.ListSessions(admin_pb2.ListSessionsRequest()).sessions)

    (seconds, number), left = _moves(made), place()
    admin.DrainWorker(admin_pb2.DrainWorkerRequest(worker_id=left))
    wait_until(lambda: place() != left, "the session is moved")
    admin.DrainWorker(admin_pb2.DrainWorkerRequest(worker_id=left, undo=True))
    wait_until(lambda: _moves(made)[1] > number, "the move is counted")
    stage("moves")
    return LANE_BYTES / 1e6 / (_moves(made)[0] - seconds)


def _moves(made: Runtime) -> tuple[float, float]:
    """The seconds of all so far, and how many there were."""
    seen = scrape(made.routers[0].metrics)
    name = "kakeya_router_move_seconds"
    return seen.value(f"{name}_sum", outcome="moved"), seen.value(f"{name}_count", outcome="moved")


def compared(pairs: Sequence[tuple[float, float]], unit: float) -> dict[str, Any]:
    """Medians of both sides, and the median of what the second adds with its interval."""
    values = np.array(pairs) * unit
    added = intervals.of_median((values[:, 1] - values[:, 0]).tolist())
    medians = dict(zip(SIDES, np.median(values, axis=0).tolist(), strict=True))
    return {**medians, "added": added.estimate, "interval_95": [added.low, added.high]}


async def _measured(
    sides: Sequence[Side], settings: TunnelSettings, what: str, stage: Any
) -> list[tuple[float, float]]:
    found = []
    for order in in_turn(sides, settings.pairs):
        took = {}
        for side in order:
            took[id(side)] = await (
                side.cpu_seconds(settings.tokens) if what == "tokens" else side.first_token_seconds()
            )
        found.append((took[id(sides[0])], took[id(sides[1])]))
        stage(what)
    return found


def verdicts(found: dict[str, Any]) -> list[Verdict]:
    bounds = {"us a token": TOKEN_US, "ms to the first token": FIRST_TOKEN_MS}
    added = [at_most(name, "added", Precise(found[name]["added"]), Precise(bound)) for name, bound in bounds.items()]
    return [*added, at_least(_RATE, "median", Precise(found[_RATE]["median"]), Precise(LANE_MB))]


@bench.command(TunnelSettings)
def measure(settings: TunnelSettings, stage: Stage) -> Found:
    num_moves = 2 * settings.moves
    step, found = stage.steps(2 * settings.pairs + num_moves), dict[str, Any]()

    async def measured(made: Sequence[Any], what: str) -> list[tuple[float, float]]:
        async with AsyncExitStack() as stack:
            sides = []
            for one, process in made:
                client = await stack.enter_async_context(kakeya.AsyncClient(one.address, credentials=one.credentials))
                sides.append(Side(one, process, client))
            return await _measured(sides, settings, what, step)

    with runtimes(stage.directory, _STEPS_A_SECOND) as made:
        found["us a token"] = compared(asyncio.run(measured(made, "tokens")), 1e6)
    with runtimes(stage.directory, 2_000.0) as made:  # an answer does not wait for the clock
        found["ms to the first token"] = compared(asyncio.run(measured(made, "first tokens")), 1e3)
    rates = moved_mb_a_second(stage.directory, num_moves, step)
    found[_RATE] = {"median": float(np.median(rates)), "least": min(rates), "most": max(rates)}
    return found, verdicts(found)
