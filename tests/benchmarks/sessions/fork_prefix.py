"""Time to first token of sessions on one prefix: branched off from a prepared session, and prefilled each for itself.

On a runtime of real processes, as a client sees it: from CreateSession to the first token, which for a fork is a copy
of KV and for the others a prefill. All forks stay open, each on a lane of its own that nobody used before; of the
prefilled ones one is there at a time. They take turns. Exits with 1 where forks are not 20 times as fast on the
average, or where one of them says something else: tokens, greedy and drawn, and the log-probabilities of the
likeliest ids, which tell of the logits' bits.
"""

import time
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

import numpy as np

import kakeya
from kakeya_bench.engine import plan
from kakeya_bench.report.verdict import at_least, at_most
from kakeya_bench.statistics.distribution import median
from kakeya_shared.settings.service import setting
from tests.benchmarks import bench, models
from tests.benchmarks.bench import BenchSettings, Found, Stage
from tests.benchmarks.models import num_threads
from tests.integration.processes import runtime

LEAST_RATIO = 20.0
SHAPE = {**plan.SHAPE, "num_hidden_layers": 7, "vocab_size": 32_000}
"""A quarter of Qwen3-0.6B: the lanes of fifty whole ones are more than most machines hold."""
PREFIX_TOKENS = 2_000
SINK, WINDOW = 4, 2_044
NUM_TOKENS, NUM_LOGPROBS = 8, 20
CHOICES: tuple[dict[str, Any], ...] = ({}, {"temperature": 1.0, "seed": 7})


class ForkSettings(BenchSettings):
    forks: int = setting(50, "sessions that branch off", reason="all lanes of 4 GB", metavar="N", ge=1)
    prefilled: int = setting(10, "sessions that prefill", reason="they take a minute", metavar="N", ge=1)


def sessions(
    client: kakeya.Client, num_forks: int, num_prefilled: int, on_session: Callable[[str], None]
) -> tuple[dict[str, list[float]], int]:
    """Seconds to the first token, a session each; and how many did not say what the first one said."""
    prefix: list[int] = np.random.default_rng(0).integers(SHAPE["vocab_size"], size=PREFIX_TOKENS).tolist()
    source = client.create_session(label="source")
    source.append(prefix)
    turns = [(number / num_forks, "fork") for number in range(num_forks)]
    turns += [(number / num_prefilled, "prefilled") for number in range(num_prefilled)]
    taken: dict[str, list[float]] = {"fork": [], "prefilled": []}
    all_said = []
    for _, kind in sorted(turns):
        started = time.perf_counter()
        session = client.create_session(fork_from=source if kind == "fork" else None)
        if kind == "prefilled":
            session.append(prefix)
        came, said = _say(session)
        taken[kind].append(came - started)
        all_said.append(said)
        if kind == "prefilled":
            session.close()
        on_session("sessions")
    all_said.append(_say(source)[1])  # which none of its forks has changed
    return taken, sum(said != all_said[0] for said in all_said)


def _say(session: kakeya.Session) -> tuple[float, list[object]]:
    """When the first token came; tokens and log-probabilities."""
    moments, said = [], list[object]()
    for choice in CHOICES:
        with session.generate(max_tokens=NUM_TOKENS, logprobs=NUM_LOGPROBS, **choice) as generation:
            for token in generation:
                moments.append(time.perf_counter())
                said.append(token)
        said += [(each.logprob, tuple(each.top_logprobs)) for each in generation.details]
    return moments[0], said


def _milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    found = {"mean_ms": mean(seconds), "p50_ms": median(seconds), "max_ms": max(seconds)}
    return {name: round(value * 1e3, 2) for name, value in found.items()} | {"sessions": len(seconds)}


@bench.command(ForkSettings)
def measure(settings: ForkSettings, stage: Stage) -> Found:
    model = models.save(stage.directory / "model", **SHAPE)
    environment = {"KAKEYA_WORKER_CACHE_DIR": str(stage.directory / "cache")}
    # int8 promises equal bits.
    flags = ("--weights", "int8", "--sink", str(SINK), "--window", str(WINDOW), "--threads", num_threads())
    with runtime(model, stage.directory, num_workers=0, environment=environment) as made:
        made.start_worker(*flags, lanes=settings.forks + 2)
        made.wait_for_workers(1)
        with kakeya.Client(made.address) as client:
            step = stage.steps(settings.forks + settings.prefilled)
            taken, num_different = sessions(client, settings.forks, settings.prefilled, step)
    ratio = mean(taken["prefilled"]) / mean(taken["fork"])
    document = {
        "prefix_tokens": PREFIX_TOKENS,
        "model": SHAPE,
        "sink": SINK,
        "window": WINDOW,
        **{kind: _milliseconds(seconds) for kind, seconds in taken.items()},
        "ratio": round(ratio, 2),
        "least_ratio": LEAST_RATIO,
        "num_different": num_different,
    }
    return document, [
        at_least("speed", "times as fast by a fork:", ratio, LEAST_RATIO),
        at_most("sameness", "sessions that said something else:", num_different, 0),
    ]
