"""Kakeya's verifier as a contestant, stepped as the engine steps it."""

import random
import time
from collections.abc import Sequence
from pathlib import Path

from kakeya_bench.engine.contestants import Fields
from kakeya_bench.engine.plan import DECODE, Case
from kakeya_bench.engine.stepping import Lanes
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.torch_backend import TorchVerifier
from kakeya_worker.torch_backend.exact.kernel.library import chosen_kernel

SINK = 4
_NUM_BEYOND = 192  # tokens that a session's history has beyond what it keeps


class Kakeya:
    """A TorchVerifier and lanes of its slab."""

    def load(self, model: str, weights: str, num_threads: int, cache_directory: Path, kv_dtype: str = "auto") -> Fields:
        """See `Contestant`.

        Args:
            weights, kv_dtype: as a worker's flags have them.
            cache_directory: where int8 weights are kept.
        """
        began = time.perf_counter()
        self._verifier = TorchVerifier(
            model, weights=weights, kv_dtype=kv_dtype, num_threads=num_threads, cache_directory=cache_directory
        )
        self._vocabulary = range(self._verifier.facts.vocab_size)
        self._chance = random.Random(0)
        self._allocate(LaneGeometry(SINK, window=1, chunk=1), 1)
        self._prefill(1)
        facts, kernel = self._verifier.facts, chosen_kernel()
        return {
            "seconds": time.perf_counter() - began,
            "weights": facts.weights,
            "kv_dtype": facts.kv_dtype,
            "kv_bytes_per_token": facts.kv_bytes_per_token,
            "fingerprint": facts.fingerprint,
            "kernel": kernel.name if kernel else None,
        }

    def open(self, cases: Sequence[Case], chunk: int) -> Fields:
        """See `Contestant`; every session has forgotten `_NUM_BEYOND` tokens and goes on from there.

        Args:
            chunk: C, the most tokens of a prefill's step.
        """
        geometry = LaneGeometry(SINK, cases[0].window - SINK, chunk)
        num_lanes = max(case.num_sessions for case in cases)
        self._allocate(geometry, num_lanes)
        first = self._lanes.all[0]
        self._prefill(geometry.capacity + _NUM_BEYOND)
        for index in range(1, num_lanes):
            self._verifier.copy_lane(first.index, index, first.num_used_slots)
            self._lanes.all[index] = first.fork(index)
        return {"history_tokens": first.length, "chunk": chunk}

    def measure(self, case: Case, num_times: int) -> list[float]:
        """See `Contestant`."""
        if case.kind == DECODE:
            return [self._decode_step(case.num_sessions) for _ in range(1 + num_times)][1:]
        return [self._prefill(case.num_new_tokens) for _ in range(num_times)]

    def _allocate(self, geometry: LaneGeometry, num_lanes: int) -> None:
        self._verifier.allocate(geometry, num_lanes)
        for lane in range(num_lanes):
            self._verifier.populate_lane(lane)  # as the engine does before a session takes one
        self._lanes = Lanes(self._verifier, geometry, num_lanes)

    def _decode_step(self, num_sessions: int) -> float:
        """The logits from which the next tokens are chosen, and those tokens' forward pass."""
        sessions = list(range(num_sessions))
        rows = self._lanes.rows([self._tokens(1) for _ in sessions])
        began = time.perf_counter()
        self._verifier.logits(sessions)
        self._verifier.forward(rows)
        seconds = time.perf_counter() - began
        self._lanes.commit(rows)
        return seconds

    def _prefill(self, num_tokens: int) -> float:
        """Of the first session, in chunks, and the logits at the end."""
        began = time.perf_counter()
        first = self._lanes.all[0]
        end = first.length + num_tokens
        while first.length < end:
            self._lanes.forward([self._tokens(min(first.geometry.chunk, end - first.length))])
        self._verifier.logits([0])
        return time.perf_counter() - began

    def _tokens(self, number: int) -> list[int]:
        return self._chance.choices(self._vocabulary, k=number)


contestant = Kakeya()
