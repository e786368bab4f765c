"""`make bench-mlx`: what its verdict goes by."""

import numpy as np
import pytest

from tests.benchmarks import mlx_bench
from tests.benchmarks.mlx_bench import Pair, Run


def _pair(num_sessions: int, ratio: float) -> Pair:
    """Three rounds in which Kakeya makes so many times mlx-lm's tokens."""
    return Pair(num_sessions, [Run(1.0, 0.01)] * 3, [Run(1.0, 0.01 * ratio)] * 3)


def test_one_broken_bound_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    assert mlx_bench.report([_pair(1, 1.0), _pair(4, 0.96)], 1.02, 100)
    assert "100.0 tokens/s  mlx-lm   100.0  ratio 1.000 [1.000, 1.000]" in capsys.readouterr().out
    assert not mlx_bench.report([_pair(1, 1.0), _pair(4, 0.94)], 1.02, 100)
    assert not mlx_bench.report([_pair(1, 1.0), _pair(4, 0.96)], 1.06, 100)
    assert capsys.readouterr().out.count("BROKEN") == 2


def test_drift_counts_from_the_full_window() -> None:
    num_filling = mlx_bench.GEOMETRY.capacity // (mlx_bench.NUM_APPENDED + mlx_bench.NUM_ANSWERED)
    filling, first, last = np.full(num_filling, 0.1), np.full(20, 1.0), np.full(20, 1.5)
    assert mlx_bench.drift(np.concatenate([filling, first, last])) == 1.5
