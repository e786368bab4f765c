"""`make bench-memory` on a small model: that it measures a worker's memory, and that its bounds can break."""

from pathlib import Path

import pytest

from tests.benchmarks import memory
from tests.benchmarks.memory import Soak, Start
from tests.checkpoints import save_random_qwen3

MEGABYTE = 10**6


def _start(peak_megabytes: int) -> Start:
    return Start("cached", "kernel", 1.0, peak_megabytes * MEGABYTE, 600 * MEGABYTE, 100 * MEGABYTE)


def test_the_bound_of_a_start() -> None:
    assert _start(1170).is_kept  # 1.1 x 700 + 400
    assert not _start(1171).is_kept


@pytest.mark.parametrize("growing", [False, True])
def test_growth_is_from_one_tenth_to_another(growing: bool) -> None:
    """The first tenth does not count, nor does a moment."""
    rounds = [(100 + growing * number) * MEGABYTE for number in range(100)]
    rounds[:10] = range(10)
    rounds[99] *= 2
    soak = Soak(100, rounds)
    assert soak.growth_bytes == (80 * MEGABYTE if growing else 0)
    assert soak.is_kept is not growing


def test_one_broken_bound_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    steady, growing = Soak(2, [MEGABYTE] * 20), Soak(2, [number * MEGABYTE for number in range(20)])
    assert memory.report([_start(500), _start(600)], steady)
    assert not memory.report([_start(500), _start(2000)], steady)
    assert not memory.report([_start(500), _start(600)], growing)
    assert capsys.readouterr().out.count("BROKEN") == 2


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="anonymous memory is read from Linux's /proc")
@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_a_worker_keeps_its_bounds(tmp_path: Path) -> None:
    # Weights are most of it: 150 MB, so that a second copy of them in memory would show.
    checkpoint = save_random_qwen3(
        tmp_path / "model", vocab_size=64_000, hidden_size=1024, intermediate_size=4096, num_hidden_layers=6
    )
    converting, cached = memory.measure_starts(checkpoint, tmp_path)
    assert converting.weights_bytes == cached.weights_bytes > 140 * MEGABYTE
    assert converting.is_kept
    assert cached.is_kept
    if cached.form == "kernel":
        assert cached.peak_bytes < memory.BESIDE_BYTES + cached.slab_bytes, "the weights are the file's pages"
        assert cached.seconds < 60
    soak = memory.measure_turns(save_random_qwen3(tmp_path / "tiny"), tmp_path, num_turns=2000, num_sessions=50)
    assert soak.is_kept
