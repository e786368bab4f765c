"""The MLX backend beside mlx-lm on the same checkpoint, in one process, in rounds that take turns.

    python -m tests.benchmarks.mlx_bench [--rounds N] [--turns N] [--json FILE]

Greedy decoding of one session beside mlx-lm's `generate_step`, of four in one step beside its `BatchGenerator`; four
bits, as mlx-lm quantizes. Kakeya is stepped as its engine steps it: logits, the choice on the host, a forward pass.
Every session stays inside its window in these, so that both do the same work. Then a session of many turns, whose
window is full early.

Exits with 1 when Kakeya's decoding is slower than 0.95 times mlx-lm's, or the last quarter of the turns slower than
the first by more than 5 %.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.generate import BatchGenerator, generate_step
from mlx_lm.utils import load_model, quantize_model, save_config, save_model

from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, sink_window
from kakeya_worker.mlx_backend import MlxVerifier
from tests.benchmarks.interval import interval_of_median
from tests.checkpoints import save_random_qwen3

SHAPE: dict[str, Any] = {
    "vocab_size": 4096,
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 4096,
}
GEOMETRY = LaneGeometry(sink=4, window=124, chunk=32)
NUM_SESSIONS = (1, 4)
NUM_PROMPT, NUM_DECODED = 32, 32  # tokens
NUM_APPENDED, NUM_ANSWERED = 12, 4  # tokens a turn
LEAST_RATIO = 0.95  # of mlx-lm's tokens a second
MOST_DRIFT = 1.05  # seconds of a turn, the last quarter's against the first's


@dataclass(frozen=True)
class Run:
    """Seconds until the first token is there, and of a step after it."""

    prefill_seconds: float
    step_seconds: float


@dataclass
class Pair:
    """The runs of both with one number of sessions, round by round."""

    num_sessions: int
    kakeya: list[Run] = field(default_factory=list)
    mlx_lm: list[Run] = field(default_factory=list)

    def ratios(self, name: str) -> "np.ndarray[Any, Any]":
        """mlx-lm's seconds in a round as a multiple of Kakeya's: the tokens a second of Kakeya against mlx-lm's."""
        pairs = zip(self.mlx_lm, self.kakeya, strict=True)
        return np.array([getattr(theirs, name) / getattr(ours, name) for theirs, ours in pairs])

    @property
    def is_good(self) -> bool:
        return float(np.median(self.ratios("step_seconds"))) >= LEAST_RATIO


class Kakeya:
    """A verifier and a lane for each session."""

    def __init__(self, model: Path) -> None:
        self._verifier = MlxVerifier(str(model), weights="auto", kv_dtype="auto", num_threads=1, cache_directory=None)
        self._verifier.allocate(GEOMETRY, max(NUM_SESSIONS))

    def run(self, prompts: list[list[int]]) -> Run:
        """Sessions that begin anew."""
        lanes = [self._lane(index) for index in range(len(prompts))]
        began = time.perf_counter()
        for start in range(0, NUM_PROMPT, GEOMETRY.chunk):
            self._step(lanes, [prompt[start : start + GEOMETRY.chunk] for prompt in prompts])
        chosen = self._choose(lanes)
        prefilled = time.perf_counter()
        for _ in range(NUM_DECODED - 1):
            self._step(lanes, chosen)
            chosen = self._choose(lanes)
        return Run(prefilled - began, (time.perf_counter() - prefilled) / (NUM_DECODED - 1))

    def turns(self, num_turns: int) -> "np.ndarray[Any, Any]":
        """Seconds of each turn of one session; [turns]."""
        lane, chance, seconds = self._lane(0), np.random.default_rng(0), []
        for _ in range(num_turns):
            tokens = chance.integers(SHAPE["vocab_size"], size=NUM_APPENDED).tolist()
            began = time.perf_counter()
            self._step([lane], [tokens])
            for _ in range(NUM_ANSWERED):
                self._step([lane], self._choose([lane]))
            seconds.append(time.perf_counter() - began)
        return np.array(seconds)

    def _lane(self, index: int) -> Lane:
        return Lane(GEOMETRY, index, sink_window(SessionOptions(), GEOMETRY))

    def _step(self, lanes: list[Lane], tokens: list[list[int]]) -> None:
        rows = [lane.row(tuple(brought)) for lane, brought in zip(lanes, tokens, strict=True)]
        self._verifier.forward(rows)
        for lane, row in zip(lanes, rows, strict=True):
            lane.commit(row)

    def _choose(self, lanes: list[Lane]) -> list[list[int]]:
        logits = self._verifier.logits([lane.index for lane in lanes])
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


def compare(kakeya: Kakeya, mlx_lm: MlxLm, num_rounds: int) -> list[Pair]:
    """Rounds in which both take turns at each number of sessions; who begins alternates. One round warms up."""
    pairs = [Pair(number) for number in NUM_SESSIONS]
    chance = np.random.default_rng(0)
    for number in range(1 + num_rounds):
        for pair in pairs:
            prompts = chance.integers(SHAPE["vocab_size"], size=(pair.num_sessions, NUM_PROMPT)).tolist()
            sides: list[tuple[Callable[[list[list[int]]], Run], list[Run]]]
            sides = [(kakeya.run, pair.kakeya), (mlx_lm.run, pair.mlx_lm)]
            for run, runs in sides if number % 2 else reversed(sides):
                measured = run(prompts)
                if number:
                    runs.append(measured)
    return pairs


def drift(seconds: "np.ndarray[Any, Any]") -> float:
    """The median turn of the last quarter against that of the first, counted from when the window is full."""
    full = seconds[-(-GEOMETRY.capacity // (NUM_APPENDED + NUM_ANSWERED)) :]
    quarter = len(full) // 4
    return float(np.median(full[-quarter:]) / np.median(full[:quarter]))


def as_json(pairs: list[Pair], drifted: float, num_turns: int) -> dict[str, Any]:
    """What was measured, and what it was judged by."""
    return {
        "model": SHAPE,
        "weights": "4bit",
        "least_ratio": LEAST_RATIO,
        "most_drift": MOST_DRIFT,
        "sessions": [_figures(pair) for pair in pairs],
        "turns": num_turns,
        "drift": drifted,
    }


def _figures(pair: Pair) -> dict[str, Any]:
    figures: dict[str, Any] = {"num_sessions": pair.num_sessions, "rounds": len(pair.kakeya)}
    for kind, name, tokens in (("prefill", "prefill_seconds", NUM_PROMPT), ("decode", "step_seconds", 1)):
        ratios = pair.ratios(name)
        figures[kind] = {
            "kakeya_tokens_per_second": _speed(pair.kakeya, name, tokens * pair.num_sessions),
            "mlx_lm_tokens_per_second": _speed(pair.mlx_lm, name, tokens * pair.num_sessions),
            "ratio": float(np.median(ratios)),
            "interval": interval_of_median(ratios),
        }
    return figures


def _speed(runs: list[Run], name: str, num_tokens: int) -> float:
    return num_tokens / float(np.median([getattr(run, name) for run in runs]))


def report(pairs: list[Pair], drifted: float, num_turns: int) -> bool:
    """Prints a table and the verdict; whether all bounds were kept."""
    for pair in pairs:
        figures = _figures(pair)
        for kind in ("prefill", "decode"):
            of = figures[kind]
            print(
                f"{pair.num_sessions} sessions  {kind:8} Kakeya {of['kakeya_tokens_per_second']:7.1f} tokens/s  "
                f"mlx-lm {of['mlx_lm_tokens_per_second']:7.1f}  ratio {of['ratio']:.3f} "
                f"[{of['interval'][0]:.3f}, {of['interval'][1]:.3f}]"
            )
    is_good = all(pair.is_good for pair in pairs) and drifted <= MOST_DRIFT
    print(f"{num_turns} turns: the last quarter's take {drifted:.3f} times the first's (bound: {MOST_DRIFT:g})")
    print(f"decoding at least {LEAST_RATIO:g} times as fast as mlx-lm, and flat: {'kept' if is_good else 'BROKEN'}")
    return is_good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10, help="of both, after one that warms up (default: 10)")
    parser.add_argument("--turns", type=int, default=100, help="of the long session (default: 100)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        model = make_checkpoint(Path(directory))
        kakeya = Kakeya(model)
        pairs = compare(kakeya, MlxLm(model), arguments.rounds)
        drifted = drift(kakeya.turns(arguments.turns))
    is_good = report(pairs, drifted, arguments.turns)
    if arguments.json:
        arguments.json.write_text(json.dumps(as_json(pairs, drifted, arguments.turns), indent=2) + "\n")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
