"""`make bench-memory` on a small model: that it measures a worker's memory, and that its bounds can break."""

from pathlib import Path

import pytest

from kakeya_bench.rivals.checkpoint import save_random_qwen3
from tests.benchmarks.worker import memory

MEGABYTE = 10**6


@pytest.mark.parametrize(("peak", "is_kept"), [(1170, True), (1171, False)])  # 1.1 x 700 + 400
def test_the_bound_of_a_start(peak: int, is_kept: bool) -> None:
    start = memory.start("cached", "kernel", 1.0, peak * MEGABYTE, 600 * MEGABYTE, 100 * MEGABYTE)
    verdict, _ = memory.verdicts([start], memory.soak(2, [MEGABYTE] * 20))
    assert start["is_kept"] is is_kept
    assert verdict.outcome == ("passed" if is_kept else "failed")


@pytest.mark.parametrize("growing", [False, True])
def test_growth_is_from_one_tenth_to_another(growing: bool) -> None:
    """The first tenth does not count, nor does a moment."""
    rounds = [(100 + growing * number) * MEGABYTE for number in range(100)]
    rounds[:10] = range(10)
    rounds[99] *= 2
    soak = memory.soak(100, rounds)
    (verdict,) = memory.verdicts([], soak)
    assert soak["growth_bytes"] == (80 * MEGABYTE if growing else 0)
    assert soak["is_kept"] is not growing
    assert verdict.outcome == ("failed" if growing else "passed")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="anonymous memory is read from Linux's /proc")
@pytest.mark.heavy
@pytest.mark.timeout(600)
async def test_a_worker_keeps_its_bounds(tmp_path: Path) -> None:
    # Weights are most of it: 150 MB, so that a second copy of them in memory would show.
    checkpoint = save_random_qwen3(
        tmp_path / "model", vocab_size=64_000, hidden_size=1024, intermediate_size=4096, num_hidden_layers=6
    )
    converting, cached = [await memory.measure_start(kind, checkpoint, tmp_path) for kind in ("converting", "cached")]
    assert converting["weights_bytes"] == cached["weights_bytes"] > 140 * MEGABYTE
    assert converting["is_kept"]
    assert cached["is_kept"]
    if cached["form"] == "kernel":
        assert cached["peak_bytes"] < memory.BESIDE_BYTES + cached["slab_bytes"], "the weights are the file's pages"
        assert cached["seconds"] < 60
    tiny = save_random_qwen3(tmp_path / "tiny")
    soak = await memory.measure_turns(tiny, tmp_path, num_turns=2000, on_round=print, num_sessions=50)
    assert soak["is_kept"]
