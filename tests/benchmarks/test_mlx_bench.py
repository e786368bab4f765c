"""`make bench-mlx`: what its verdicts go by."""

import numpy as np
import pytest

from kakeya_bench.report.verdict import Outcome
from tests.benchmarks import mlx_bench
from tests.benchmarks.mlx_bench import Pair, Run


@pytest.mark.parametrize(
    ("ratio", "drift", "broken"), [(0.96, 1.02, []), (0.94, 1.02, ["decode_4"]), (0.96, 1.06, ["drift"])]
)
def test_one_broken_bound_is_enough(ratio: float, drift: float, broken: list[str]) -> None:
    """Three rounds in which Kakeya makes as many tokens as mlx-lm alone, and so many times as many in fours."""
    pairs = [Pair(number, [Run(1.0, 0.01)] * 3, [Run(1.0, 0.01 * each)] * 3) for number, each in ((1, 1.0), (4, ratio))]
    sessions = [pair.document() for pair in pairs]
    assert sessions[0]["decode"]["kakeya_tokens_per_second"] == sessions[0]["decode"]["mlx_lm_tokens_per_second"] == 100
    assert sessions[0]["decode"]["interval"] == [1.0, 1.0]
    found = mlx_bench.verdicts(sessions, drift)
    assert [each.gate for each in found if each.outcome is Outcome.FAILED] == broken


def test_drift_counts_from_the_full_window() -> None:
    num_filling = mlx_bench.GEOMETRY.capacity // (mlx_bench.NUM_APPENDED + mlx_bench.NUM_ANSWERED)
    filling, first, last = np.full(num_filling, 0.1), np.full(20, 1.0), np.full(20, 1.5)
    assert mlx_bench.drift(np.concatenate([filling, first, last])) == 1.5
