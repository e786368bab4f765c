"""Time to first token of sessions on one prefix: branched off from a prepared session, and prefilled each for itself.

    python -m tests.benchmarks.fork_prefix [--forks N] [--prefilled N] [--json FILE]

On a runtime of real processes, as a client sees it: from CreateSession to the first token, which for a fork is a copy
of KV and for the others a prefill. All forks stay open, each on a lane of its own that nobody used before; of the
prefilled ones one is there at a time. They take turns. Exits with 1 where forks are not 20 times as fast on the
average, or where one of them says something else: tokens, greedy and drawn, and the log-probabilities of the
likeliest ids, which tell of the logits' bits.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress

import kakeya
from tests.benchmarks import qwen3_session
from tests.checkpoints import save_random_qwen3
from tests.integration.processes import Runtime, runtime

LEAST_RATIO = 20.0
SHAPE = {**qwen3_session.SHAPE, "num_hidden_layers": 7, "vocab_size": 32_000}
"""A quarter of Qwen3-0.6B: the lanes of fifty whole ones are more than most machines hold."""
PREFIX_TOKENS = 2_000
SINK, WINDOW = 4, 2_044
NUM_TOKENS, NUM_LOGPROBS = 8, 20
CHOICES: tuple[dict[str, Any], ...] = ({}, {"temperature": 1.0, "seed": 7})

Said = list[tuple[int, float | None, tuple[Any, ...]]]


@dataclass
class Measures:
    """Attributes:
    fork, prefilled: seconds to the first token, a session each.
    num_different: sessions that did not say what the first one said.
    """

    fork: list[float] = field(default_factory=list)
    prefilled: list[float] = field(default_factory=list)
    num_different: int = 0

    @property
    def ratio(self) -> float:
        return mean(self.prefilled) / mean(self.fork)

    @property
    def is_good(self) -> bool:
        return self.ratio >= LEAST_RATIO and not self.num_different


class Bench:
    """Sessions on one prefix."""

    def __init__(self, client: kakeya.Client) -> None:
        self._client = client
        self._prefix = np.random.default_rng(0).integers(SHAPE["vocab_size"], size=PREFIX_TOKENS).tolist()
        self._expected: Said | None = None
        self.measures = Measures()

    def run(self, num_forks: int, num_prefilled: int, progress: Progress) -> None:
        bar = progress.add_task("sessions", total=num_forks + num_prefilled)
        turns = [(number / num_forks, self._fork) for number in range(num_forks)]
        turns += [(number / num_prefilled, self._prefill) for number in range(num_prefilled)]
        self._source = self._client.create_session(label="source")
        self._source.append(self._prefix)
        for _, turn in sorted(turns, key=lambda turn: turn[0]):
            turn()
            progress.advance(bar)
        self._say(self._source)  # which none of its forks has changed

    def _fork(self) -> None:
        started = time.perf_counter()
        session = self._client.create_session(fork_from=self._source)
        self.measures.fork.append(self._say(session) - started)

    def _prefill(self) -> None:
        started = time.perf_counter()
        with self._client.create_session() as session:
            session.append(self._prefix)
            self.measures.prefilled.append(self._say(session) - started)

    def _say(self, session: kakeya.Session) -> float:
        """Compares what it says with what the first one said; when its first token came."""
        came, said = _say(session, CHOICES[0])
        for choice in CHOICES[1:]:
            said += _say(session, choice)[1]
        self._expected = self._expected or said
        self.measures.num_different += said != self._expected
        return came


def _say(session: kakeya.Session, choice: dict[str, Any]) -> tuple[float, Said]:
    """Tokens and log-probabilities, and when the first one came."""
    with session.generate(max_tokens=NUM_TOKENS, logprobs=NUM_LOGPROBS, **choice) as generation:
        stream = iter(generation)
        tokens = [next(stream)]
        came = time.perf_counter()
        tokens += stream
    details = generation.details
    said = [(token, each.logprob, tuple(each.top_logprobs)) for token, each in zip(tokens, details, strict=True)]
    return came, said


def start(made: Runtime, num_lanes: int) -> None:
    """A worker that computes in int8, which promises equal bits."""
    threads = str(len(os.sched_getaffinity(0)))
    shape = ("--sink", str(SINK), "--window", str(WINDOW), "--threads", threads)
    made.start_worker("--weights", "int8", *shape, lanes=num_lanes)
    made.wait_for_workers(1)


def _milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    return {
        "mean_ms": round(mean(seconds) * 1e3, 2),
        "p50_ms": round(median(seconds) * 1e3, 2),
        "max_ms": round(max(seconds) * 1e3, 2),
        "sessions": len(seconds),
    }


def as_json(measures: Measures) -> str:
    """What was measured, and what it was judged by."""
    facts = {
        "prefix_tokens": PREFIX_TOKENS,
        "model": SHAPE,
        "sink": SINK,
        "window": WINDOW,
        "fork": _milliseconds(measures.fork),
        "prefilled": _milliseconds(measures.prefilled),
        "ratio": round(measures.ratio, 2),
        "least_ratio": LEAST_RATIO,
        "num_different": measures.num_different,
    }
    return json.dumps(facts, indent=2)


def report(measures: Measures, console: Console) -> None:
    """Prints a table and the verdict."""
    for name, seconds in (("forked", measures.fork), ("prefilled", measures.prefilled)):
        numbers = _milliseconds(seconds)
        console.print(
            f"{name:10} {numbers['sessions']:3} sessions  time to first token: mean {numbers['mean_ms']:9.1f} ms  "
            f"p50 {numbers['p50_ms']:9.1f} ms  max {numbers['max_ms']:9.1f} ms"
        )
    same = "all said the same" if not measures.num_different else f"{measures.num_different} said SOMETHING ELSE"
    console.print(
        f"{PREFIX_TOKENS} tokens: forks are {measures.ratio:.1f} times as fast (bound: {LEAST_RATIO:g}), and {same}: "
        f"{'kept' if measures.is_good else 'BROKEN'}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--forks", type=int, default=50, help="sessions that branch off (default: 50)")
    parser.add_argument("--prefilled", type=int, default=10, help="sessions that prefill (default: 10)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        model = save_random_qwen3(Path(directory) / "model", dtype=torch.bfloat16, **SHAPE)
        environment = {"KAKEYA_WORKER_CACHE_DIR": str(Path(directory) / "cache")}
        with (
            runtime(model, Path(directory), num_workers=0, environment=environment) as made,
            Progress(console=Console(stderr=True), transient=True) as progress,
        ):
            start(made, arguments.forks + 2)
            with kakeya.Client(made.address) as client:
                bench = Bench(client)
                bench.run(arguments.forks, arguments.prefilled, progress)
    report(bench.measures, Console(width=200))
    if arguments.json:
        arguments.json.write_text(as_json(bench.measures) + "\n")
    return 0 if bench.measures.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
