"""What a long prefill does to a session that generates on the same worker, and one worker to another on two cores.

The model has Qwen3-0.6B's shape and random weights, in int8. A session generates, alone and beside a prefill of
another session, at a small and at a large window, in interleaved rounds. Inter-token times beside the prefill are
compared with those alone, and the throughput of both at once with that of the same work done one after the other. Then
two workers generate at once on the same two cores. Exits with 1 when the median of the rounds breaks a bound.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from kakeya_bench.report.verdict import Verdict, at_least, at_most, exit_status
from kakeya_bench.statistics.distribution import median
from kakeya_shared.settings.service import setting
from tests.benchmarks import bench
from tests.benchmarks.bench import Found, Numbers, Stage
from tests.benchmarks.models import ModelSettings
from tests.benchmarks.worker import interference_worker
from tests.benchmarks.worker.interference_worker import NUM_CORES

# By window: of the inter-token time beside the prefill to that alone, and of both at once to one after the other.
BOUNDS = {
    64: {"most_p95_ratio": 2.5, "least_throughput_ratio": 1.1},
    2048: {"most_p95_ratio": 3.0, "least_throughput_ratio": 0.0},
}
LEAST_TWO_WORKERS_RATIO = 0.6  # tokens of two workers at once, of one alone
SINK = 4
_LEAD_SECONDS = 1.0  # from asking two workers to generate until it counts


def _known(windows: tuple[int, ...]) -> tuple[int, ...]:
    if unknown := set(windows) - BOUNDS.keys():
        raise ValueError(f"no bounds for {unknown}")
    return windows


class InterferenceSettings(ModelSettings):
    seconds: float = setting(5.0, "of generating alone", unit="seconds", reason="a hundred tokens", gt=0)
    rounds: int = setting(3, "rounds of measurements", reason="a median", metavar="N", ge=1)
    prefill_tokens: int = setting(4096, "length of the prefill", unit="tokens", reason="many steps", ge=1)
    windows: Annotated[Numbers, AfterValidator(_known)] = setting(
        tuple(BOUNDS), "windows, separated by commas", unit="tokens", reason="both", metavar="64,2048"
    )


@contextmanager
def engines(model: Path, windows: Sequence[int], cache: Path) -> Iterator[list[ProcessPoolExecutor]]:
    """One of each window."""
    with ExitStack() as stack:
        started = []
        for window in windows:
            flags = ["--model", str(model), "--weights", "int8", "--sink", str(SINK), "--window", str(window)]
            flags += ["--lanes", "2", "--threads", str(NUM_CORES), "--cache-dir", str(cache)]
            started.append(stack.enter_context(interference_worker.started(flags)))
            stack.callback(lambda process: process.submit(interference_worker.shut_down).result(), started[-1])
        yield started


def rate(processes: Sequence[ProcessPoolExecutor], seconds: float) -> float:
    """Tokens a second of all together."""
    starts = time.monotonic() + _LEAD_SECONDS
    counts = [process.submit(interference_worker.num_generated, starts, seconds) for process in processes]
    return sum(count.result() for count in counts) / seconds


def compare(window: int, rounds: Sequence[Mapping[str, float]]) -> tuple[dict[str, Any], list[Verdict]]:
    """Medians over the rounds, held to the bounds."""
    found = {name: median(each[name] for each in rounds) for name in rounds[0]}
    gate, bounds = f"window {window}", BOUNDS[window]
    verdicts = [at_most(f"{gate}, p95", "beside the prefill to alone:", found["p95_ratio"], bounds["most_p95_ratio"])]
    if least := bounds["least_throughput_ratio"]:
        verdicts.append(at_least(f"{gate}, throughput", "at once to in turn:", found["throughput_ratio"], least))
    return {"window": window, **found, "bounds": bounds, "is_kept": exit_status(verdicts) == 0}, verdicts


def two_workers(rates: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Of what one and two generated in each round, in tokens a second; the ratio is the median of the rounds."""
    ratio = median(two / one for one, two in rates)
    return {
        "one": median(one for one, _ in rates),
        "two": median(two for _, two in rates),
        "ratio": ratio,
        "least_ratio": LEAST_TWO_WORKERS_RATIO,
        "is_kept": ratio >= LEAST_TWO_WORKERS_RATIO,
    }


@bench.command(InterferenceSettings)
def measure(settings: InterferenceSettings, stage: Stage) -> Found:
    model, windows = settings.made(stage), settings.windows
    prefill = tuple(number % 89 for number in range(settings.prefill_tokens))
    rounds: dict[int, list[dict[str, float]]] = {window: [] for window in windows}
    rates = []
    step = stage.steps(settings.rounds * (len(windows) + 1), start=0.1)
    with engines(model, [*windows, windows[0]], stage.directory / "cache") as processes:
        for _ in range(settings.rounds):
            for window, process in zip(windows, processes, strict=False):
                rounds[window].append(
                    process.submit(interference_worker.interference, settings.seconds, prefill).result()
                )
                step(f"window {window} is measured")
            first, *_, second = processes
            rates.append((rate([first], settings.seconds), rate([first, second], settings.seconds)))
            step("two workers are measured")
    comparisons, verdicts = zip(*(compare(window, each) for window, each in rounds.items()), strict=True)
    both = two_workers(rates)
    ratio = at_least("two workers", "together to one alone:", both["ratio"], LEAST_TWO_WORKERS_RATIO)
    return {"beside_a_prefill": comparisons, "two_workers": both}, [*chain(*verdicts), ratio]
