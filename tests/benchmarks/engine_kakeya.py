"""Kakeya's verifier in `make bench-engine`, stepped as the engine steps it; run by the project's own Python."""

import random
import time
from pathlib import Path

from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, sink_window
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.torch_backend import TorchVerifier
from tests.benchmarks.engine_case import DECODE, Case
from tests.benchmarks.engine_contestant import Fields, serve

SINK = 4
_NUM_BEYOND = 192  # tokens that a session's history has beyond what it keeps


class Kakeya:
    """A TorchVerifier and lanes of its slab."""

    def load(self, model: str, weights: str, num_threads: int, cache_directory: str) -> Fields:
        """See `Contestant`.

        Args:
            weights: "int8" or "bfloat16".
            cache_directory: where int8 weights are kept.
        """
        began = time.perf_counter()
        self._verifier = TorchVerifier(
            model, weights=weights, kv_dtype="auto", num_threads=num_threads, cache_directory=Path(cache_directory)
        )
        self._chance = random.Random(0)
        self._allocate(LaneGeometry(SINK, window=1, chunk=1), num_lanes=1)
        self._append(self._lanes[0], 1)
        self._verifier.logits([0])
        facts = self._verifier.facts
        return {
            "seconds": time.perf_counter() - began,
            "weights": facts.weights,
            "kv_dtype": facts.kv_dtype,
            "kv_bytes_per_token": facts.kv_bytes_per_token,
            "fingerprint": facts.fingerprint,
        }

    def open(self, window: int, cases: list[Fields], chunk: int) -> Fields:
        """See `Contestant`; every session has forgotten `_NUM_BEYOND` tokens and goes on from there.

        Args:
            chunk: C, the most tokens of a prefill's step.
        """
        num_lanes = max(Case.of(case).num_sessions for case in cases)
        self._allocate(LaneGeometry(SINK, window - SINK, chunk), num_lanes)
        first = self._lanes[0]
        self._append(first, first.geometry.capacity + _NUM_BEYOND)
        for index in range(1, num_lanes):
            self._verifier.copy_lane(first.index, index, first.num_used_slots)
            self._lanes[index] = first.fork(index)
        return {"history_tokens": first.length, "chunk": chunk}

    def measure(self, case: Case, num_times: int) -> list[float]:
        """See `Contestant`."""
        if case.kind == DECODE:
            lanes = self._lanes[: case.num_sessions]
            return [self._decode_step(lanes) for _ in range(1 + num_times)][1:]
        return [self._prefill(self._lanes[0], case.num_new_tokens) for _ in range(num_times)]

    def _decode_step(self, lanes: list[Lane]) -> float:
        """The logits from which the next tokens are chosen, and those tokens' forward pass."""
        indices = [lane.index for lane in lanes]
        rows = [self._row(lane, 1) for lane in lanes]
        began = time.perf_counter()
        self._verifier.logits(indices)
        self._verifier.forward(rows)
        seconds = time.perf_counter() - began
        for lane, row in zip(lanes, rows, strict=True):
            lane.commit(row)
        return seconds

    def _prefill(self, lane: Lane, num_tokens: int) -> float:
        """In chunks, and the logits at the end."""
        began = time.perf_counter()
        self._append(lane, num_tokens)
        self._verifier.logits([lane.index])
        return time.perf_counter() - began

    def _append(self, lane: Lane, num_tokens: int) -> None:
        end = lane.length + num_tokens
        while lane.length < end:
            row = self._row(lane, min(lane.geometry.chunk, end - lane.length))
            self._verifier.forward([row])
            lane.commit(row)

    def _row(self, lane: Lane, num_tokens: int) -> Row:
        vocabulary = range(self._verifier.facts.vocab_size)
        return lane.row(tuple(self._chance.choices(vocabulary, k=num_tokens)))

    def _allocate(self, geometry: LaneGeometry, num_lanes: int) -> None:
        self._verifier.allocate(geometry, num_lanes)
        retention = sink_window(SessionOptions(), geometry)
        self._lanes = [Lane(geometry, index, retention) for index in range(num_lanes)]


if __name__ == "__main__":
    serve(Kakeya())
