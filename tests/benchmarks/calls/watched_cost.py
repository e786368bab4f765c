"""What it costs to be watched: metrics, and traces at full sampling, beside the same without them.

Decode throughput: two whole runtimes, router and worker of kakeya-nano, one of them watched, answer in turn (A B, B A,
...) while the other is idle: one session alone, and 64 at once. A router's processor time a token: as `make
bench-router` measures it, on a worker without a model. Metrics are read once every 15 seconds, as Prometheus does;
spans are received by a collector in the bench's own process.

Exits with 1 where the upper end of the 95 % interval of the median over pairs is above its bound: metrics 1 % of decode
throughput and 2 % of the router's time, traces 2 % of each.
"""

import asyncio
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import kakeya
from kakeya_bench.report.quantities import Precise
from kakeya_bench.report.verdict import Verdict, at_most
from kakeya_bench.statistics import intervals
from kakeya_shared import installed_models
from kakeya_shared.settings.service import setting
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchSettings, Found, Stage
from tests.benchmarks.calls import router_cost
from tests.benchmarks.calls.side_by_side import Kind
from tests.benchmarks.pairs import in_turn
from tests.integration.otlp_receiver import OtlpReceiver, otlp_receiver
from tests.integration.processes import Runtime, runtime

MODEL = "kakeya-nano"
CROWDS = (1, 64)
UNWATCHED = "unwatched"
BOUNDS = {"metrics": (1.01, 1.02), "traces": (1.02, 1.02)}
"""Of the time of a token, and of the router's processor time of one, as shares of what they are unwatched."""

_NO_METRICS = ("--metrics-bind=none",)
_SCRAPE_SECONDS = 15.0
_NUM_PROMPT = 16
_WINDOW = 252
_NUM_WARM_ROUNDS = 2


class WatchedSettings(BenchSettings):
    pairs: int = setting(
        20, "pairs of measurements of each kind", reason="the bounds are of percents", metavar="N", ge=2
    )
    seconds: float = setting(1.0, "of one measurement", unit="seconds", reason="a hundred steps", gt=0)
    routers: int = setting(20, "pairs of routers", reason="two equal processes differ by percents", metavar="N", ge=2)
    calls: int = setting(64, "calls of each kind on each router of a pair", reason="seconds", metavar="N", ge=1)


def kinds(receiver: OtlpReceiver) -> dict[str, Kind]:
    """By name: how the services are started. Spans go in batches, as by default; to a collector that is named metrics
    are sent, too, unless that is said.
    """
    traced = receiver.environment() | {
        "OTEL_BSP_SCHEDULE_DELAY": "5000",
        "OTEL_TRACES_SAMPLER": "always_on",
        "OTEL_METRICS_EXPORTER": "none",
    }
    return {
        UNWATCHED: Kind(UNWATCHED, _NO_METRICS),
        "metrics": Kind("metrics"),
        "traces": Kind("traces", _NO_METRICS, traced),
    }


@contextmanager
def scraped(made: Sequence[Runtime]) -> Iterator[None]:
    """All metrics of these are read now and then."""
    shown = [each.metrics for one in made for each in (*one.routers, *one.workers)]
    stop = threading.Event()

    def scrape() -> None:
        while not stop.wait(_SCRAPE_SECONDS):
            for address in filter(lambda each: each != "none", shown):
                urllib.request.urlopen(f"http://{address}/metrics").read()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@dataclass
class Crowd:
    """Sessions that answer at once."""

    sessions: Sequence[kakeya.AsyncSession]
    num_tokens: int = _NUM_PROMPT

    async def seconds_a_token(self) -> float:
        """Each generates the same number of tokens; their common time over all of these."""
        began = time.perf_counter()
        await asyncio.gather(*map(self._answer, self.sessions))
        return (time.perf_counter() - began) / (self.num_tokens * len(self.sessions))

    async def _answer(self, session: kakeya.AsyncSession) -> None:
        answer = session.generate(max_tokens=self.num_tokens, temperature=0, ignore_eos=True)
        assert len([token async for token in answer]) == self.num_tokens


async def decoded(
    made: Sequence[Runtime], num_sessions: int, num_pairs: int, seconds: float, on_pair: Callable[[str], None]
) -> list[tuple[float, float]]:
    """Seconds a token of the two sides, by pair."""
    crowds = []
    async with AsyncExitStack() as stack:
        for each in made:
            client = await stack.enter_async_context(kakeya.AsyncClient(each.address))
            sessions = [await client.create_session() for _ in range(num_sessions)]
            for session in sessions:
                stack.push_async_callback(session.close)
                await session.append(range(300, 300 + _NUM_PROMPT))
            crowds.append(Crowd(sessions))
        for _ in range(_NUM_WARM_ROUNDS):
            slowest = max([await crowd.seconds_a_token() for crowd in crowds])
        for crowd in crowds:
            crowd.num_tokens = max(1, round(seconds / (slowest * num_sessions)))
        found = []
        for order in in_turn(crowds, num_pairs):
            took = {id(crowd): await crowd.seconds_a_token() for crowd in order}
            found.append((took[id(crowds[0])], took[id(crowds[1])]))
            on_pair("decoding")
        return found


def compared(pairs: Sequence[tuple[float, float]], name: str, bound: float) -> dict[str, Any]:
    """Microseconds a token, and the median of the ratio of the two sides with its interval."""
    by_side = np.median(np.array(pairs), axis=0) * 1e6
    ratios = [watched / unwatched for unwatched, watched in pairs]
    ratio = intervals.of_median(ratios)
    return {
        "us_a_token": dict(zip((UNWATCHED, name), by_side.tolist(), strict=True)),
        "ratio": ratio.estimate,
        "interval_95": [ratio.low, ratio.high],
        "ratio_by_pair": ratios,
        "bound": bound,
    }


@contextmanager
def whole_runtimes(sides: Sequence[Kind], directory: Path) -> Iterator[list[Runtime]]:
    """One of each kind, with a worker that has lanes for the largest crowd."""
    with ExitStack() as stack:
        made = []
        for kind in sides:
            place = directory / f"whole-{kind.name}"
            place.mkdir()
            model, environment = installed_models.directory(MODEL), dict(kind.environment)
            one = stack.enter_context(
                runtime(model, place, num_workers=0, router_flags=tuple(kind.flags), environment=environment)
            )
            one.start_worker("--weights=int8", f"--window={_WINDOW}", *kind.flags, lanes=max(CROWDS))
            one.wait_for_workers(1)
            made.append(one)
        with scraped(made):
            yield made


def of_routers(pairs: Sequence[router_cost.Pair], name: str, bound: float) -> dict[str, Any]:
    """Processor time of the router, by token of an answer."""
    calls = router_cost.figures(pairs, (UNWATCHED, name), bound)["Generate"]
    milliseconds: Mapping[str, float] = calls["cpu_ms"]
    us = {side: each * 1e3 / router_cost.NUM_GENERATED for side, each in milliseconds.items()}
    ratio = intervals.of_median(calls["ratio_by_pair"])
    return {
        "us_a_token": us,
        "ratio": ratio.estimate,
        "interval_95": [ratio.low, ratio.high],
        "ratio_by_pair": calls["ratio_by_pair"],
        "bound": bound,
    }


def verdicts(found: Mapping[str, Mapping[str, Any]]) -> list[Verdict]:
    return [
        at_most(name, "upper end of the ratio's interval", Precise(each["interval_95"][1]), Precise(each["bound"]))
        for name, each in found.items()
    ]


@bench.command(WatchedSettings)
def measure(settings: WatchedSettings, stage: Stage) -> Found:
    num_groups = 2 * max(1, settings.calls // (2 * router_cost.GROUP))
    num_steps = len(BOUNDS) * (len(CROWDS) * settings.pairs + settings.routers * num_groups)
    step, found = stage.steps(num_steps), dict[str, dict[str, Any]]()
    with otlp_receiver() as receiver:
        unwatched, *watched = kinds(receiver).values()
        for kind in watched:
            of_decoding, of_router = BOUNDS[kind.name]
            sides = (unwatched, kind)
            directory = stage.directory / kind.name
            directory.mkdir()
            with whole_runtimes(sides, directory) as made:
                for number in CROWDS:
                    pairs = asyncio.run(decoded(made, number, settings.pairs, settings.seconds, step))
                    found[f"{kind.name}, decoding, {number} at once"] = compared(pairs, kind.name, of_decoding)
            routers = [*router_cost.measured(sides, directory, settings.routers, num_groups, step)]
            found[f"{kind.name}, router"] = of_routers(routers, kind.name, of_router)
    return found, verdicts(found)
