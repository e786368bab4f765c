"""`make bench-mlx`: what its verdict goes by."""

from typing import Any

import numpy as np
import pytest

from tests.benchmarks import mlx_bench
from tests.benchmarks.mlx_bench import Pair, Run


def _found(ratio: float, drift: float) -> dict[str, Any]:
    """Three rounds in which Kakeya makes as many tokens as mlx-lm alone, and so many times as many in fours."""
    pairs = [Pair(number, [Run(1.0, 0.01)] * 3, [Run(1.0, 0.01 * each)] * 3) for number, each in ((1, 1.0), (4, ratio))]
    return {"sessions": [pair.document() for pair in pairs], "turns": 100, "drift": drift}


def test_one_broken_bound_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    assert mlx_bench.report(_found(0.96, 1.02))
    assert "decode of 4" in (said := capsys.readouterr().out)
    assert "0.96" in said
    assert not mlx_bench.report(_found(0.94, 1.02))
    assert not mlx_bench.report(_found(0.96, 1.06))
    assert capsys.readouterr().out.count("BROKEN") == 2


def test_drift_counts_from_the_full_window() -> None:
    num_filling = mlx_bench.GEOMETRY.capacity // (mlx_bench.NUM_APPENDED + mlx_bench.NUM_ANSWERED)
    filling, first, last = np.full(num_filling, 0.1), np.full(20, 1.0), np.full(20, 1.5)
    assert mlx_bench.drift(np.concatenate([filling, first, last])) == 1.5
