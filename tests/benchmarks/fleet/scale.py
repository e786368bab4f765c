"""What 10, 100 and 1,000 workers cost a router: joining, being there, and finding one for a new session.

Workers are stand-ins in one process (tests/benchmarks/fleet/stand_ins.py). They join, beat and report lanes by the
worker's own code, each over a connection of its own. Each holds 64 idle sessions, of whose lanes a twentieth changes
from one heartbeat to the next. All of them start at once.

A router's share of a core is its processor time, as the scheduler counts it, over the time in which nobody calls it.
Each fleet has a router and a Redis of its own, and stays there while the next one comes. At last CreateSession is
called at all of them in turn, one at a time; each session is closed before the next. Then all workers of the largest
fleet restart (tests/benchmarks/fleet/restarts.py). What tokens and calls cost is
measured beside a pass-through (tests/benchmarks/fleet/tokens.py), what a session's life costs
(tests/benchmarks/fleet/lives.py), and what it costs beside many idle ones (tests/benchmarks/fleet/idle_sessions.py).
Exits with 1 where a bound is broken: 30 s for all to join, a quarter of a core, and 1.3 times the median CreateSession
of the smallest fleet; the other bounds stand below and in those modules.
"""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from kakeya_bench.compare.processes import cpu_seconds_of
from kakeya_bench.report.quantities import Precise, Seconds
from kakeya_bench.report.verdict import Verdict, at_most
from kakeya_bench.statistics.distribution import median
from kakeya_shared.settings.service import setting
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1 import runtime_pb2_grpc
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchSettings, Found, Numbers, Stage
from tests.benchmarks.fleet import idle_sessions, lives, pictures, restarts, tokens
from tests.benchmarks.fleet.tokens import Amounts
from tests.integration.processes import Runtime, runtime

_NUM_WARM = 20
_JOIN_SECONDS, _CORE_SHARE, _CREATE_RATIO = 30.0, 0.25, 1.3
_RATIOS = {
    "router_us_a_token_paced_over_aio": 1.3,
    "router_us_a_token_full_over_aio": 1.0,
    "router_ms_a_call_over_aio": 1.9,
    "worker_us_a_token_over_in_process": 1.2,
}
_REDIS_US = 25.0
_NUM_LIVES, _NUM_CROWDED = 300, 60
_NUM_LIVES_BESIDE, _BESIDE_SECONDS = 300, 10.0


class ScaleSettings(BenchSettings):
    workers: Numbers = setting((10, 100, 1000), "workers of the fleets", metavar="N,...")
    rounds: int = setting(
        4, "rounds of tokens and calls; 0: none of these, and no lives", reason="two minutes", metavar="N", ge=0
    )
    tokens_only: bool = setting(False, "no fleets: what tokens, calls and lives cost, only", reason="all is measured")
    idle_sessions: Numbers = setting(
        (1_000, 100_000, 1_000_000),
        "how many sessions are idle while one lives",
        reason="the last ones take 2 GB of Redis",
        metavar="N,...",
    )
    idle_seconds: float = setting(
        60.0, "how long each fleet is watched without a call", unit="seconds", reason="several of all intervals", gt=0
    )
    restart_seconds: float = setting(
        600.0,
        "within which all workers of the largest fleet restart, one after the other; 0: none does",
        unit="seconds",
        reason="as an operator would have it",
        ge=0,
    )
    creates: int = setting(300, "sessions that are opened in each fleet", reason="seconds", metavar="N", ge=1)
    output: Path | None = setting(
        None, "where pictures of fleets and idle sessions are written, as PNG", unit="directory", reason="none"
    )


@dataclass
class StandIns:
    """Workers in a process of their own."""

    process: "subprocess.Popen[str]"

    def said(self) -> Mapping[str, float]:
        """What they say next. Raises ValueError: they have ended."""
        assert self.process.stdout is not None
        said: Mapping[str, float] = json.loads(self.process.stdout.readline())
        return said

    def restart(self) -> Mapping[str, float]:
        """All of them, one after the other."""
        self.process.send_signal(signal.SIGUSR1)
        return self.said()


@contextmanager
def standing(made: Runtime, number: int, restart_seconds: float) -> Iterator[StandIns]:
    """So many stand-ins."""
    module = "tests.benchmarks.fleet.stand_ins"
    command = [sys.executable, "-m", module, made.address, made.redis.url, str(number), str(restart_seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield StandIns(process)
    finally:
        process.terminate()
        process.wait(timeout=60)
        process.stdout.close()


@dataclass
class Fleet:
    """One, beside its router.

    Attributes:
        create_seconds: of each CreateSession.
    """

    made: Runtime
    workers: StandIns
    number: int
    join_seconds: float
    join_cpu_seconds: float
    core_share: float = 0.0
    create_seconds: list[float] = field(default_factory=list)

    @property
    def cpu_seconds(self) -> float:
        return cpu_seconds_of(self.made.routers[0].process.pid)

    def idle(self, seconds: float) -> None:
        """Watches the router for so long."""
        began, before = time.monotonic(), self.cpu_seconds
        time.sleep(seconds)
        self.core_share = (self.cpu_seconds - before) / (time.monotonic() - began)
        self.made.wait_for_workers(self.number)

    def document(self) -> dict[str, Any]:
        return {
            "join": Seconds(self.join_seconds),
            "router_cpu_to_join": Seconds(self.join_cpu_seconds),
            "router_core_share": self.core_share,
            "create_p50": Seconds(median(self.create_seconds)),
            "create_p95": Seconds(sorted(self.create_seconds)[int(0.95 * len(self.create_seconds))]),
        }


@contextmanager
def fleet(directory: Path, number: int, restart_seconds: float) -> Iterator[Fleet]:
    """So many workers at a router of their own, once all of them have joined and their lanes are known."""
    directory.mkdir()
    flags = ("--metrics-bind=none", "--log-level=warning")
    with runtime(directory, directory, num_workers=0, router_flags=flags) as made:
        before = cpu_seconds_of(made.routers[0].process.pid)
        with standing(made, number, restart_seconds) as workers:
            joined = workers.said()["joined_seconds"]
            found = Fleet(made, workers, number, joined, cpu_seconds_of(made.routers[0].process.pid) - before)
            workers.said()
            yield found


async def create(fleets: Sequence[Fleet], number: int) -> None:
    """So many sessions in each, in turn, so that whoever else is on the machine disturbs all of them alike."""
    async with AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(grpc.aio.insecure_channel(each.made.address)) for each in fleets]
        stubs: list[Any] = [runtime_pb2_grpc.RuntimeServiceStub(channel) for channel in channels]
        for place in range(_NUM_WARM + number):
            for each, stub in zip(fleets, stubs, strict=True):
                began = time.perf_counter()
                created = await stub.CreateSession(api.CreateSessionRequest())
                if place >= _NUM_WARM:
                    each.create_seconds.append(time.perf_counter() - began)
                await stub.CloseSession(api.CloseSessionRequest(session_id=created.session_id))


def figures(least: Fleet, most: Fleet) -> dict[str, Any]:
    """What is judged."""
    ratio = median(most.create_seconds) / median(least.create_seconds)
    return {
        f"seconds_for_{most.number}_workers_to_join": Seconds(most.join_seconds),
        f"router_core_share_at_{most.number}_workers": most.core_share,
        f"create_ratio_{most.number}_to_{least.number}_workers": ratio,
    }


def verdicts(found: Mapping[str, Any], least: int, most: int) -> list[Verdict]:
    """Of what was measured of fleets."""
    return [
        at_most(
            "joining", f"{most} workers join", found[f"seconds_for_{most}_workers_to_join"], Seconds(_JOIN_SECONDS)
        ),
        at_most("idle", "share of a core", found[f"router_core_share_at_{most}_workers"], _CORE_SHARE),
        at_most("placing", "ratio of the medians", found[f"create_ratio_{most}_to_{least}_workers"], _CREATE_RATIO),
    ]


def verdicts_of_tokens(found: Mapping[str, Any]) -> list[Verdict]:
    """Of what was measured of tokens and calls."""
    ratios = [at_most(name, "ratio", Precise(found[name]), Precise(bound)) for name, bound in _RATIOS.items()]
    return [*ratios, at_most("redis", "us a token", Precise(found["redis_us_a_token"]), Precise(_REDIS_US))]


def amounts(rounds: int) -> Amounts:
    return Amounts(rounds, paced_tokens=160, full_tokens=600, calls=150, nano_tokens=100)


def _of_fleets(settings: ScaleSettings, stage: Stage, step: Callable[[str], None]) -> Found:
    numbers, restart_seconds = sorted(settings.workers), settings.restart_seconds
    with ExitStack() as stack:
        fleets = []
        for number in numbers:
            fleets.append(stack.enter_context(fleet(stage.directory / str(number), number, restart_seconds)))
            fleets[-1].idle(settings.idle_seconds)
            step(f"{number} workers")
        asyncio.run(create(fleets, settings.creates))
        step("sessions")
        found = {f"{each.number} workers": each.document() for each in fleets} | figures(fleets[0], fleets[-1])
        judged = verdicts(found, numbers[0], numbers[-1])
        if restart_seconds:
            most = fleets[-1]
            found["restart"] = asyncio.run(restarts.restarted(most.made.address, most.workers.restart))
            judged += restarts.verdicts(found["restart"], restart_seconds)
            step("restart")
    return found, judged


@bench.command(ScaleSettings)
def measure(settings: ScaleSettings, stage: Stage) -> Found:
    num_of_fleets = len(settings.workers) + 1 + bool(settings.restart_seconds) + len(settings.idle_sessions)
    num_steps = (5 + settings.rounds if settings.rounds else 0) + (0 if settings.tokens_only else num_of_fleets)
    step, found, judged = stage.steps(num_steps), dict[str, Any](), list[Verdict]()
    if settings.rounds:
        found |= tokens.of_relaying(stage.directory / "relaying", amounts(settings.rounds), step)
        found["redis_us_a_token"] = found["us a token paced"]["redis"]
        found |= tokens.of_worker(stage.directory / "nano", amounts(settings.rounds), step)
        found |= lives.of_lives(stage.directory / "lives", _NUM_LIVES, _NUM_CROWDED, step)
        judged += verdicts_of_tokens(found) + lives.verdicts(found)
    if not settings.tokens_only:
        beside = idle_sessions.of_idle_sessions(
            *(stage.directory / "idle", settings.idle_sessions, _NUM_LIVES_BESIDE, _BESIDE_SECONDS, step)
        )
        found |= beside
        judged += idle_sessions.verdicts(beside)
        of_fleets, of_bounds = _of_fleets(settings, stage, step)
        found |= of_fleets
        judged += of_bounds
    if settings.output is not None:
        settings.output.mkdir(parents=True, exist_ok=True)
        for picture in pictures.pictures(found):
            (settings.output / f"{picture.name}.png").write_bytes(picture.png)
    return found, judged
