"""The MLX backend beside mlx-lm on the same checkpoint, in one process, in rounds that take turns.

Greedy decoding of one session beside mlx-lm's `generate_step`, of four in one step beside its `BatchGenerator`; four
bits, as mlx-lm quantizes. Every session stays inside its window in these, so that both do the same work. Then a session
of many turns, whose window is full early. Exits with 1 when Kakeya's decoding is slower than 0.95 times mlx-lm's, or
the last quarter of the turns slower than the first by more than 5 %.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.generate import BatchGenerator, generate_step
from mlx_lm.utils import load_model, quantize_model, save_config, save_model

from kakeya_bench.engine.stepping import Lanes
from kakeya_bench.report.quantities import Precise
from kakeya_bench.report.verdict import Verdict, at_least, at_most
from kakeya_bench.rivals.checkpoint import SMALL, save_random_qwen3
from kakeya_bench.statistics import intervals
from kakeya_bench.statistics.distribution import median
from kakeya_shared.settings.service import setting
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.mlx_backend import MlxVerifier
from tests.benchmarks import bench, pairs
from tests.benchmarks.bench import BenchSettings, Found, Stage

SHAPE = {**SMALL, "vocab_size": 4096, "num_hidden_layers": 8, "max_position_embeddings": 4096}
GEOMETRY = LaneGeometry(sink=4, window=124, chunk=32)
NUM_SESSIONS = (1, 4)
NUM_PROMPT, NUM_DECODED = 32, 32  # tokens
NUM_APPENDED, NUM_ANSWERED = 12, 4  # tokens a turn
LEAST_RATIO = 0.95  # of mlx-lm's tokens a second
MOST_DRIFT = 1.05  # seconds of a turn, the last quarter's against the first's


class MlxSettings(BenchSettings):
    rounds: int = setting(10, "rounds of both, after one that warms up", reason="a minute", metavar="N", ge=1)
    turns: int = setting(100, "turns of the long session", reason="the window is full after ten", metavar="N", ge=20)


@dataclass(frozen=True)
class Run:
    """Seconds until the first token is there, and of a step after it."""

    prefill: float
    decode: float


@dataclass
class Pair:
    """The runs of both with one number of sessions, round by round."""

    num_sessions: int
    kakeya: list[Run] = field(default_factory=list)
    mlx_lm: list[Run] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Tokens a second of both, and Kakeya's against mlx-lm's: the median over rounds, and its interval."""
        found: dict[str, Any] = {"num_sessions": self.num_sessions, "rounds": len(self.kakeya)}
        for kind, num_tokens in (("prefill", NUM_PROMPT * self.num_sessions), ("decode", self.num_sessions)):
            ours, theirs = ([getattr(run, kind) for run in runs] for runs in (self.kakeya, self.mlx_lm))
            ratio, *interval = astuple(intervals.of_median(list(np.divide(theirs, ours))))
            found[kind] = {
                "kakeya_tokens_per_second": num_tokens / median(ours),
                "mlx_lm_tokens_per_second": num_tokens / median(theirs),
                "ratio": ratio,
                "interval": interval,
            }
        return found


class Kakeya:
    """A verifier that is stepped as its engine steps it: logits, the choice on the host, a forward pass."""

    def __init__(self, model: Path) -> None:
        self._verifier = MlxVerifier(str(model), weights="auto", kv_dtype="auto", num_threads=1, cache_directory=None)
        self._verifier.allocate(GEOMETRY, max(NUM_SESSIONS))

    def run(self, prompts: list[list[int]]) -> Run:
        """Sessions that begin anew."""
        lanes = Lanes(self._verifier, GEOMETRY, len(prompts))
        began = time.perf_counter()
        for start in range(0, NUM_PROMPT, GEOMETRY.chunk):
            lanes.forward([prompt[start : start + GEOMETRY.chunk] for prompt in prompts])
        chosen = self._choose(len(prompts))
        prefilled = time.perf_counter()
        for _ in range(NUM_DECODED - 1):
            lanes.forward(chosen)
            chosen = self._choose(len(prompts))
        return Run(prefilled - began, (time.perf_counter() - prefilled) / (NUM_DECODED - 1))

    def turns(self, num_turns: int) -> "np.ndarray[Any, Any]":
        """Seconds of each turn of one session; [turns]."""
        lanes, chance, seconds = Lanes(self._verifier, GEOMETRY, 1), np.random.default_rng(0), []
        for _ in range(num_turns):
            tokens = chance.integers(SHAPE["vocab_size"], size=NUM_APPENDED).tolist()
            began = time.perf_counter()
            lanes.forward([tokens])
            for _ in range(NUM_ANSWERED):
                lanes.forward(self._choose(1))
            seconds.append(time.perf_counter() - began)
        return np.array(seconds)

    def _choose(self, num_sessions: int) -> list[list[int]]:
        logits = self._verifier.logits(list(range(num_sessions)))
        return [[token] for token in logits.argmax(axis=-1).tolist()]


class MlxLm:
    """mlx-lm's generators with a cache of their own."""

    def __init__(self, model: Path) -> None:
        self._model, _ = load_model(model)

    def run(self, prompts: list[list[int]]) -> Run:
        """As Kakeya's."""
        began = time.perf_counter()
        instants = self._one(prompts[0]) if len(prompts) == 1 else self._many(prompts)
        return Run(instants[0] - began, (instants[-1] - instants[0]) / (len(instants) - 1))

    def _one(self, prompt: list[int]) -> list[float]:
        tokens = generate_step(mx.array(prompt), self._model, max_tokens=NUM_DECODED)
        return [time.perf_counter() for _ in tokens]

    def _many(self, prompts: list[list[int]]) -> list[float]:
        generator = BatchGenerator(
            self._model, max_tokens=NUM_DECODED, completion_batch_size=len(prompts), prefill_batch_size=len(prompts)
        )
        generator.insert(prompts)
        instants = []
        while responses := generator.next_generated():
            assert len(responses) == len(prompts), "not all of them decode together"
            instants.append(time.perf_counter())
        generator.close()
        return instants


def make_checkpoint(directory: Path) -> Path:
    """Random weights in four bits: they cost as much to run as trained ones."""
    model, config = load_model(save_random_qwen3(directory / "float32", **SHAPE))
    model, config = quantize_model(model, config, group_size=64, bits=4)
    quantized = directory / "4bit"
    quantized.mkdir()
    save_model(quantized, model)
    save_config(config, quantized / "config.json")
    return quantized


def compare(kakeya: Kakeya, mlx_lm: MlxLm, num_rounds: int, on_round: Callable[[str], None]) -> list[Pair]:
    """Rounds in which both take turns at each number of sessions; who begins alternates. One round warms up."""
    found = [Pair(number) for number in NUM_SESSIONS]
    sides: Sequence[MlxLm | Kakeya] = (mlx_lm, kakeya)
    chance = np.random.default_rng(0)
    for number, order in enumerate(pairs.in_turn(sides, 1 + num_rounds)):
        for pair in found:
            prompts = chance.integers(SHAPE["vocab_size"], size=(pair.num_sessions, NUM_PROMPT)).tolist()
            for side in order:
                measured = side.run(prompts)
                if number:
                    (pair.kakeya if side is kakeya else pair.mlx_lm).append(measured)
        on_round("rounds")
    return found


def drift(seconds: "np.ndarray[Any, Any]") -> float:
    """The median turn of the last quarter against that of the first, counted from when the window is full."""
    full = seconds[-(-GEOMETRY.capacity // (NUM_APPENDED + NUM_ANSWERED)) :]
    quarter = len(full) // 4
    return float(np.median(full[-quarter:]) / np.median(full[:quarter]))


def verdicts(sessions: Sequence[dict[str, Any]], drifted: float) -> list[Verdict]:
    return [
        *(
            at_least(f"decode_{of['num_sessions']}", "times as fast:", Precise(of["decode"]["ratio"]), LEAST_RATIO)
            for of in sessions
        ),
        at_most("drift", "the last quarter's turns in times of the first's:", Precise(drifted), MOST_DRIFT),
    ]


@bench.command(MlxSettings)
def measure(settings: MlxSettings, stage: Stage) -> Found:
    model = make_checkpoint(stage.directory)
    kakeya = Kakeya(model)
    compared = compare(kakeya, MlxLm(model), settings.rounds, stage.steps(1 + settings.rounds, end=0.8))
    sessions, drifted = [pair.document() for pair in compared], drift(kakeya.turns(settings.turns))
    document = {
        "model": SHAPE,
        "weights": "4bit",
        "least_ratio": LEAST_RATIO,
        "most_drift": MOST_DRIFT,
        "sessions": sessions,
        "turns": settings.turns,
        "drift": drifted,
    }
    return document, verdicts(sessions, drifted)
