"""What a token and a call cost a router, beside a bare pass-through of grpc.aio; part of `make bench-scale`.

Both stand before the same worker without a model, whose sessions take their steps together. They answer in turn (A B,
B A, ...): sixteen answers at once at a reader's pace, sixteen as fast as it goes, and answers of one token, one at a
time. What is compared is processor time of the one process and the other. Redis's own is of the router's answers.

Then 64 sessions of kakeya-nano: the worker's processor time for a token that it serves to a router, beside that of the
same engine in this process.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import grpc

from kakeya_bench.compare.processes import cpu_seconds_of, ids
from kakeya_bench.statistics.distribution import median
from kakeya_shared import installed_models
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1 import runtime_pb2_grpc
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from kakeya_stubs.worker.v1 import verifier_pb2_grpc
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.torch_backend import TorchVerifier
from tests.benchmarks.pairs import in_turn
from tests.benchmarks.worker.engine_session import EngineSession
from tests.integration.processes import SINK, START_SECONDS, WINDOW, Runtime, runtime, wait_until

PACED, FULL, CALL = "us_a_token_paced", "us_a_token_full", "ms_a_call"
STEPS_A_SECOND = {PACED: 40.0, FULL: 4_000.0, CALL: 4_000.0}
"""Those of the last two are more than any side relays, so that an answer waits for the one who relays it."""
NUM_STREAMS = 16
_NUM_NANO_SESSIONS = 64
_FLAGS = ("--metrics-bind=none", "--log-level=warning")
_QUIET_SECONDS = 0.3  # what goes on after an answer belongs to it


@dataclass(frozen=True)
class Amounts:
    """How much is measured.

    Attributes:
        rounds: of each side; tokens of an answer in one, and calls.
    """

    rounds: int
    paced_tokens: int
    full_tokens: int
    calls: int
    nano_tokens: int


class Session(Protocol):
    async def generate(self, num_tokens: int) -> None: ...


@dataclass
class Routed:
    """A session at the router."""

    stub: Any
    session_id: str

    @classmethod
    async def opened(cls, stub: Any) -> "Routed":
        session_id = (await stub.CreateSession(api.CreateSessionRequest())).session_id
        await stub.AppendTokens(api.AppendTokensRequest(session_id=session_id, token_ids=[1, 2, 3]))
        return cls(stub, session_id)

    async def generate(self, num_tokens: int) -> None:
        async for _ in self.stub.Generate(api.GenerateRequest(session_id=self.session_id, max_tokens=num_tokens)):
            pass


@dataclass
class Passed:
    """A lane of the worker, asked for through the pass-through."""

    stub: Any
    session_id: str
    length: int = 3

    @classmethod
    async def opened(cls, stub: Any, direct: Any, session_id: str) -> "Passed":
        await direct.OpenSession(pb.OpenSessionRequest(session_id=session_id, epoch=1))
        await direct.Append(pb.AppendRequest(session_id=session_id, epoch=1, token_ids=[1, 2, 3]))
        return cls(stub, session_id)

    async def generate(self, num_tokens: int) -> None:
        asked = pb.GenerateRequest(
            session_id=self.session_id, epoch=1, history_length=self.length, max_tokens=num_tokens
        )
        async for _ in self.stub.Generate(asked):
            pass
        self.length += num_tokens


@dataclass
class Side:
    """One of the two processes, and sessions that it relays."""

    pid: int
    sessions: Sequence[Session]

    async def at_once(self, num_tokens: int) -> None:
        await asyncio.gather(*(session.generate(num_tokens) for session in self.sessions))

    async def one_by_one(self, number: int) -> None:
        for _ in range(number):
            await self.sessions[0].generate(1)


async def cpu_seconds(pids: Sequence[int], work: Awaitable[None]) -> list[float]:
    """Of each process, for the work."""
    before = [*map(cpu_seconds_of, pids)]
    await work
    await asyncio.sleep(_QUIET_SECONDS)
    return [cpu_seconds_of(pid) - each for pid, each in zip(pids, before, strict=True)]


@contextmanager
def standing(directory: Path, steps_a_second: float) -> Iterator[tuple[Runtime, str, int]]:
    """A router with its worker, and before that a pass-through: its address and process."""
    directory.mkdir()
    with ExitStack() as stack:
        made = stack.enter_context(runtime(directory, directory, num_workers=0, router_flags=_FLAGS))

        def started(module: str, *arguments: str) -> "subprocess.Popen[str]":
            process = subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)
            stack.callback(process.terminate)
            return process

        started("tests.benchmarks.calls.paced_worker", str(steps_a_second), "", made.address)
        made.wait_for_workers(1)
        passing = started("tests.benchmarks.fleet.pass_through", made.list_workers()[0].address)
        assert passing.stdout is not None
        yield made, passing.stdout.readline().strip(), passing.pid


async def relayed(
    made: Runtime, passing: tuple[str, int], rounds: int, work: Callable[[Side], Awaitable[None]]
) -> list[tuple[float, float, float]]:
    """Of each round the processor time of the router, of the pass-through, and of Redis beside the router."""
    (redis,) = ids(made.redis.url, None)[:1]
    async with AsyncExitStack() as stack:
        places = (made.address, passing[0], made.list_workers()[0].address)
        router, passed, direct = [await stack.enter_async_context(grpc.aio.insecure_channel(each)) for each in places]
        runtime_stub = runtime_pb2_grpc.RuntimeServiceStub(router)
        stub, worker = map(verifier_pb2_grpc.VerifierServiceStub, (passed, direct))
        sides = [
            Side(made.routers[0].process.pid, [await Routed.opened(runtime_stub) for _ in range(NUM_STREAMS)]),
            Side(passing[1], [await Passed.opened(stub, worker, f"lane-{each}") for each in range(NUM_STREAMS)]),
        ]
        for side in sides:
            await work(side)  # to warm up
        found = []
        for order in in_turn(sides, rounds):
            took = {side.pid: await cpu_seconds((side.pid, redis), work(side)) for side in order}
            (ours, of_redis), (its, _) = (took[side.pid] for side in sides)
            found.append((ours, its, of_redis))
        return found


def of_relaying(directory: Path, amounts: Amounts, step: Callable[[str], None]) -> dict[str, Any]:
    """Router and pass-through: by what was done, each one's mean, and the median of the ratios of rounds."""
    works: dict[str, tuple[Callable[[Side], Awaitable[None]], float]] = {
        PACED: (lambda side: side.at_once(amounts.paced_tokens), 1e6 / (NUM_STREAMS * amounts.paced_tokens)),
        FULL: (lambda side: side.at_once(amounts.full_tokens), 1e6 / (NUM_STREAMS * amounts.full_tokens)),
        CALL: (lambda side: side.one_by_one(amounts.calls), 1e3 / amounts.calls),
    }
    found: dict[str, Any] = {}
    directory.mkdir()
    for name, (work, unit) in works.items():
        with standing(directory / name, STEPS_A_SECOND[name]) as (made, address, pid):
            rounds = asyncio.run(relayed(made, (address, pid), amounts.rounds, work))
        router, passing, redis = (unit * sum(each) / len(rounds) for each in zip(*rounds, strict=True))
        found[name.replace("_", " ")] = {"router": router, "pass-through": passing, "redis": redis}
        found[f"router_{name}_over_aio"] = median([ours / its for ours, its, _ in rounds])
        step(name)
    return found


def of_worker(directory: Path, amounts: Amounts, step: Callable[[str], None]) -> dict[str, Any]:
    """A worker of kakeya-nano that a router asks, and the same engine in this process: us a token."""
    served, unit = list[float](), 1e6 / (_NUM_NANO_SESSIONS * amounts.nano_tokens)
    model = installed_models.directory("kakeya-nano")
    directory.mkdir()
    with runtime(model, directory, num_workers=0, router_flags=_FLAGS) as made, _engine(model) as engine:
        worker = made.start_worker("--log-level=warning", "--metrics-bind=none", lanes=_NUM_NANO_SESSIONS)
        wait_until(lambda: len(made.list_workers()) == 1, "the worker has joined", START_SECONDS)
        own = [EngineSession(engine, f"own-{number}") for number in range(_NUM_NANO_SESSIONS)]
        for session in own:
            session.prefill((1, 2, 3))
        alone = []
        for _ in range(amounts.rounds):
            began = time.process_time()
            for session, running in [(each, each.generate(max_tokens=amounts.nano_tokens)) for each in own]:
                session.finished(running)
            alone.append(unit * (time.process_time() - began))
            served.append(unit * asyncio.run(_served(made, worker.process.pid, amounts.nano_tokens)))
            step("kakeya-nano")
    return {
        "us a token of kakeya-nano": {"served": sum(served) / len(served), "in process": sum(alone) / len(alone)},
        "worker_us_a_token_over_in_process": median([ours / own for ours, own in zip(served, alone, strict=True)]),
    }


async def _served(made: Runtime, pid: int, num_tokens: int) -> float:
    """The worker's processor time for answers of so many tokens in each session."""
    async with grpc.aio.insecure_channel(made.address) as channel:
        stub: Any = runtime_pb2_grpc.RuntimeServiceStub(channel)
        side = Side(pid, [await Routed.opened(stub) for _ in range(_NUM_NANO_SESSIONS)])
        (seconds,) = await cpu_seconds([pid], side.at_once(num_tokens))
        for session in side.sessions:
            assert isinstance(session, Routed)
            await stub.CloseSession(api.CloseSessionRequest(session_id=session.session_id))
        return seconds


@contextmanager
def _engine(model: Path) -> Iterator[Engine]:
    """As that of `Runtime.start_worker`."""
    verifier = TorchVerifier(str(model), weights="auto", kv_dtype="auto", num_threads=1, cache_directory=None)
    engine = Engine(verifier, LaneGeometry(SINK, WINDOW, 32), _NUM_NANO_SESSIONS, 128)
    engine.fit_step_costs()
    engine.start()
    try:
        yield engine
    finally:
        engine.shut_down()
