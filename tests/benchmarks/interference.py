"""What a long prefill does to a session that generates on the same worker, and one worker to another on two cores.

    python -m tests.benchmarks.interference [--json FILE] [--rounds N] [--seconds S] [--prefill-tokens N] [--model DIR]

The model has Qwen3-0.6B's shape and random weights, in int8. A session generates, alone and beside a prefill of
another session, at a small and at a large window, in interleaved rounds. Inter-token times beside the prefill are
compared with those alone, and the throughput of both at once with that of the same work done one after the other. Then
two workers generate at once on the same two cores. Exits with 1 when the median of the rounds breaks a bound.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np

from tests.benchmarks.interference_worker import NUM_CORES, Interference, WorkerProcess


@dataclass(frozen=True)
class Bounds:
    """Attributes:
    most_p95_ratio: of the inter-token time beside the prefill, to that alone.
    least_throughput_ratio: of both at once, to one after the other.
    """

    most_p95_ratio: float
    least_throughput_ratio: float = 0.0


BOUNDS = {64: Bounds(2.5, 1.1), 2048: Bounds(3.0)}  # by window
LEAST_TWO_WORKERS_RATIO = 0.6  # tokens of two workers at once, of one alone
SINK = 4
_LEAD_SECONDS = 1.0  # from asking two workers to generate until it counts


@dataclass(frozen=True)
class Comparison:
    """Of one window; medians over the rounds, times in milliseconds, rates in tokens a second."""

    window: int
    alone_p50: float
    alone_p95: float
    beside_p50: float
    beside_p95: float
    p95_ratio: float
    one_after_the_other: float
    both_at_once: float
    throughput_ratio: float

    @property
    def is_kept(self) -> bool:
        bounds = BOUNDS[self.window]
        return self.p95_ratio <= bounds.most_p95_ratio and self.throughput_ratio >= bounds.least_throughput_ratio


@dataclass(frozen=True)
class TwoWorkers:
    """Rates in tokens a second; the ratio is the median of the rounds."""

    one: float
    two: float
    ratio: float

    @property
    def is_kept(self) -> bool:
        return self.ratio >= LEAST_TWO_WORKERS_RATIO


def compare(window: int, rounds: list[Interference], num_prefill_tokens: int) -> Comparison:
    rows = np.array([_figures(each, num_prefill_tokens) for each in rounds])
    return Comparison(window, *map(float, np.median(rows, axis=0)))


def _figures(measured: Interference, num_prefill_tokens: int) -> tuple[float, ...]:
    """Of one round, in the order of `Comparison`."""
    alone = np.percentile(measured.alone_gaps, (50, 95)) * 1e3
    beside = np.percentile(measured.beside_gaps, (50, 95)) * 1e3
    num_tokens = num_prefill_tokens + len(measured.beside_gaps)
    apart_seconds = measured.alone_prefill_seconds + len(measured.beside_gaps) * float(np.mean(measured.alone_gaps))
    apart, at_once = num_tokens / apart_seconds, num_tokens / measured.beside_prefill_seconds
    return (*alone, *beside, beside[1] / alone[1], apart, at_once, at_once / apart)


def two_workers(workers: list[WorkerProcess], seconds: float) -> tuple[float, float]:
    """Tokens a second of the first alone, and of all at once."""
    return _rate(workers[:1], seconds), _rate(workers, seconds)


def _rate(workers: list[WorkerProcess], seconds: float) -> float:
    starts = time.monotonic() + _LEAD_SECONDS
    counts = [worker.generate(starts, seconds) for worker in workers]
    return sum(count.result() for count in counts) / seconds


@contextmanager
def engines(model: Path, windows: list[int], cache: Path) -> Iterator[dict[int, list[WorkerProcess]]]:
    """By window; two of the first."""
    with ExitStack() as stack:
        by_window: dict[int, list[WorkerProcess]] = {}
        for window in [*windows, windows[0]]:
            flags = ["--model", str(model), "--weights", "int8", "--sink", str(SINK), "--window", str(window)]
            flags += ["--lanes", "2", "--threads", str(NUM_CORES), "--cache-dir", str(cache)]
            process = WorkerProcess(flags)
            stack.callback(process.shut_down)
            by_window.setdefault(window, []).append(process)
        yield by_window


def random_model(directory: Path) -> Path:
    """Of Qwen3-0.6B's shape."""
    # Here, since torch reads the settings of its threads when it is first imported, and the processes import this file.
    import torch

    from tests.benchmarks.qwen3_session import SHAPE
    from tests.checkpoints import save_random_qwen3

    return save_random_qwen3(directory, dtype=torch.bfloat16, **SHAPE)


def report(comparisons: list[Comparison], workers: TwoWorkers) -> bool:
    """Prints tables; whether all bounds are kept."""
    print(f"{'':8}{'inter-token ms, alone':>24}{'beside a prefill':>20}{'p95':>8}{'tokens/s':>24}{'':>8}")
    print(
        f"{'window':8}{'p50':>16}{'p95':>8}{'p50':>12}{'p95':>8}{'ratio':>8}{'in turn':>14}{'at once':>10}{'ratio':>8}"
    )
    for each in comparisons:
        print(
            f"{each.window:<8}{each.alone_p50:16.1f}{each.alone_p95:8.1f}{each.beside_p50:12.1f}{each.beside_p95:8.1f}"
            f"{each.p95_ratio:8.2f}{each.one_after_the_other:14.1f}{each.both_at_once:10.1f}"
            f"{each.throughput_ratio:8.2f}  {_verdict(each.is_kept)}"
        )
    print(
        f"two workers on {NUM_CORES} cores: {workers.two:.1f} tokens/s together, one alone {workers.one:.1f}, "
        f"ratio {workers.ratio:.2f}  {_verdict(workers.is_kept)}"
    )
    return workers.is_kept and all(each.is_kept for each in comparisons)


def _verdict(is_kept: bool) -> str:
    return "kept" if is_kept else "BROKEN"


def as_json(comparisons: list[Comparison], workers: TwoWorkers) -> str:
    """The tables and what they were judged by."""
    rows = [{**asdict(each), "bounds": asdict(BOUNDS[each.window]), "is_kept": each.is_kept} for each in comparisons]
    both = {**asdict(workers), "least_ratio": LEAST_TWO_WORKERS_RATIO, "is_kept": workers.is_kept}
    return json.dumps({"beside_a_prefill": rows, "two_workers": both}, indent=2)


def measure(model: Path, cache: Path, arguments: argparse.Namespace) -> tuple[list[Comparison], TwoWorkers]:
    """Runs all rounds."""
    prefill = tuple(number % 89 for number in range(arguments.prefill_tokens))
    interferences: dict[int, list[Interference]] = {window: [] for window in arguments.windows}
    rates: list[tuple[float, float]] = []
    with engines(model, arguments.windows, cache) as by_window:
        for number in range(arguments.rounds):
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
            for window, rounds in interferences.items():
                rounds.append(by_window[window][0].interference(arguments.seconds, prefill))
            rates.append(two_workers(by_window[arguments.windows[0]], arguments.seconds))
    comparisons = [compare(window, rounds, len(prefill)) for window, rounds in interferences.items()]
    one, two = (median(rate) for rate in zip(*rates, strict=True))
    return comparisons, TwoWorkers(one, two, median(two / one for one, two in rates))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers there")
    parser.add_argument("--seconds", type=float, default=5.0, help="of generating alone (default: 5)")
    parser.add_argument("--rounds", type=int, default=3, help="of measurements (default: 3)")
    parser.add_argument("--prefill-tokens", type=int, default=4096, metavar="N", help="(default: 4096)")
    parser.add_argument("--windows", type=_windows, default=list(BOUNDS), metavar="64,2048", help="(default: both)")
    parser.add_argument(
        "--model", type=Path, metavar="DIR", help="a checkpoint (default: a random one of Qwen3-0.6B's shape)"
    )
    return parser.parse_args()


def _windows(text: str) -> list[int]:
    windows = [int(window) for window in text.split(",")]
    if unknown := set(windows) - BOUNDS.keys():
        raise argparse.ArgumentTypeError(f"no bounds for {unknown}")
    return windows


def main() -> int:
    arguments = _options()
    with tempfile.TemporaryDirectory() as directory:
        model = arguments.model or random_model(Path(directory) / "qwen3-0.6b-shape")
        comparisons, workers = measure(model, Path(directory) / "cache", arguments)
    if arguments.json:
        arguments.json.write_text(as_json(comparisons, workers) + "\n")
    return 0 if report(comparisons, workers) else 1


if __name__ == "__main__":
    sys.exit(main())
