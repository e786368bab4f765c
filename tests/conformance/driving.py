"""Drives a verifier by rows, as the engine does but with every choice in the test's hands."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kakeya_shared.errors import KakeyaError
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lane import Lane, LaneGeometry
from kakeya_worker.engine.operation import Append
from kakeya_worker.torch_backend import TorchVerifier

TOLERANCE = 1e-4  # of the largest logit, in float32 (the contract's bound)


def poisoned_verifier(
    checkpoint: Path, geometry: LaneGeometry, num_lanes: int, dtype: str = "float32"
) -> TorchVerifier:
    """A verifier in whose slab every slot is NaN until it is written: whoever reads a stale slot shows it."""
    verifier = TorchVerifier(str(checkpoint), dtype=dtype, num_threads=1)
    verifier.allocate(geometry, num_lanes)
    for tensor in (*verifier.slab.keys, *verifier.slab.values, verifier.slab.final_hidden):
        tensor.fill_(float("nan"))
    return verifier


def append(verifier: TorchVerifier, lane: Lane, token_ids: Sequence[int]) -> NDArray[np.float32]:
    """Appends in chunks, one row alone in each step; returns the logits after the last token [vocab]."""
    chunk = lane.geometry.chunk
    for start in range(0, len(token_ids), chunk):
        row = lane.row(tuple(token_ids[start : start + chunk]))
        verifier.forward([row])
        lane.commit(row)
    return verifier.logits([lane.index])[0]


def relative_error(logits: NDArray[np.float32], expected: NDArray[np.float64]) -> float:
    """The largest difference as a share of the largest expected logit; NaN anywhere is infinite."""
    error = float(np.abs(logits - expected).max() / np.abs(expected).max())
    return error if np.isfinite(error) else float("inf")


def law_error(
    checkpoint: Path, history: Sequence[int], expected: NDArray[np.float64], *, append_size: int, sink: int, window: int
) -> float:
    """The worst relative error over the ends of appends of one size, through the whole history."""
    geometry = LaneGeometry(sink, window, chunk=32)
    verifier = poisoned_verifier(checkpoint, geometry, num_lanes=2)
    lane = Lane(geometry, 1, sink, window)
    worst = 0.0
    while lane.length < len(history):
        logits = append(verifier, lane, history[lane.length : lane.length + append_size])
        worst = max(worst, relative_error(logits, expected[lane.length - 1]))
    return worst


def engine_error(
    checkpoint: Path, history: Sequence[int], expected: NDArray[np.float64], *, append_size: int, sink: int, window: int
) -> float:
    """As `law_error`, through the engine and its thread; an operation that fails counts as infinite."""
    geometry = LaneGeometry(sink, window, chunk=32)
    verifier = TorchVerifier(str(checkpoint), dtype="float32", num_threads=1)
    engine = Engine(verifier, geometry, num_lanes=1, step_tokens=64)
    engine.start()
    try:
        engine.open("s", 1, sink, window).result(timeout=10)
        worst = 0.0
        for start in range(0, len(history), append_size):
            operation = Append("s", 1, start, tuple(history[start : start + append_size]))
            engine.submit(operation)
            operation.future.result(timeout=10)
            # The engine is idle between operations, so its slab may be looked at.
            last = min(start + append_size, len(history)) - 1
            worst = max(worst, relative_error(verifier.logits([0])[0], expected[last]))
    except KakeyaError:
        return float("inf")
    finally:
        engine.shut_down()
    return worst
