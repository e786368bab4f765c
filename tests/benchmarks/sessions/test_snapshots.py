"""`make bench-snapshots` on a small model: that it measures files and times, and that its bounds can break."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kakeya_shared import installed_models
from tests.benchmarks.bench import Stage
from tests.benchmarks.sessions import sealed_files, snapshot_figures, snapshots
from tests.benchmarks.sessions.snapshots import SnapshotSettings


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [(0, 1, 1), (0, 68, 68), (0, 69, 68), (2, 69, 66), (0, 1_000, 68), (990, 1_000, 10), (900, 1_000, 64)],
)
def test_what_a_session_keeps_of_a_stretch(start: int, length: int, expected: int) -> None:
    assert snapshot_figures.num_kept(start, length, 4, 64) == expected


def test_a_file_is_known_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "pool.a-b_c-2-10-0f0f0f0f-63.safetensors"
    path.write_bytes(bytes(53 * 2048 + 1000))
    found = snapshot_figures.size(path, 4, 4_092, 2048)
    assert list(found.values()) == [10, 63, 53, 53 * 2048, 53 * 2048 + 1000, True]


@pytest.mark.parametrize(("beyond_bytes", "is_kept"), [(0, True), (165_536, True), (165_537, False), (-1, False)])
def test_the_bound_of_a_file(beyond_bytes: int, is_kept: bool) -> None:
    assert snapshot_figures.is_size_kept(10_000_000, 10_000_000 + beyond_bytes) is is_kept


def resumes(park: float = 0.1) -> dict[str, Any]:
    """Prefills of 2, 4 and 60 seconds: what takes long once does not count."""
    taken = {"prefill": [2.0, 60.0, 4.0], "write": [1.0] * 3, "park": [park] * 3, "resume": [0.1, 9.0, 0.05]}
    return snapshot_figures.resumes(1_000, taken)


def decodes(stall: float = 0.0) -> dict[str, Any]:
    return snapshot_figures.decodes([[0.1] * 50] * 2, [[0.1] * 50, [0.1] * 49 + [0.1 + stall]], 10**6)


def test_what_is_said_of_resumes_and_of_decodes() -> None:
    assert resumes()["ratio"] == pytest.approx(20.0)
    assert resumes()["ratio_with_write"] == pytest.approx(4 / 1.2)
    assert decodes()["slowdown"] == pytest.approx(0.0)
    assert decodes()["written_bytes_per_second"] == 10**5


@pytest.mark.parametrize(
    ("sizes", "park", "stall", "broken"),
    [
        ([True], 0.099, 0.49, []),
        ([True, False], 0.05, 0.0, ["sizes"]),
        ([True], 0.101, 0.0, ["resume"]),
        ([True], 0.05, 0.51, ["decode"]),  # a stall of one token counts
    ],
)
def test_one_broken_bound_is_enough(sizes: Sequence[bool], park: float, stall: float, broken: Sequence[str]) -> None:
    kept = [{"is_kept": is_kept} for is_kept in sizes]
    verdicts = snapshot_figures.verdicts(kept, resumes(park), decodes(stall))
    assert [verdict.gate for verdict in verdicts if verdict.outcome == "failed"] == broken


class _Silent:
    def show(self, share: float, what: str) -> None:
        assert 0.0 <= share <= 1.0


@pytest.mark.heavy
def test_a_small_run(tmp_path: Path) -> None:
    """All but the bounds of time: other tests may be running beside it."""
    model = installed_models.directory("kakeya-nano")
    settings = SnapshotSettings(
        model=model, window=252, lengths=(1, 10, 63, 200, 300), tokens=200, rounds=2, seconds=0.5
    )
    document, _ = snapshots.measure(settings, Stage(tmp_path, _Silent()))
    found = {(size["start"], size["length"], size["num_tokens"]) for size in document["sizes"]}
    since = {(10, 63, 53), (63, 200, 137)}  # at 300 more would have come since 10 than is kept: that one is whole
    assert found == since | {(0, 1, 1), (0, 10, 10), (0, 63, 63), (0, 200, 200), (0, 300, 256)}
    assert all(size["is_kept"] for size in document["sizes"])
    for name in ("prefill", "write", "park", "resume"):
        assert len(document["resumes"][name]) == 2
        assert min(document["resumes"][name]) > 0.0
    assert len(document["decodes"]["slowdowns"]) >= 2
    whole_bytes = 200 * 1_536
    assert document["decodes"]["written_bytes_per_second"] > whole_bytes / 2, "one in each half second at least"


def test_files_are_written_and_read_both_ways(tmp_path: Path) -> None:
    found = sealed_files.compared(sealed_files.made(tmp_path), 3 << 20, 2)
    assert found.keys() == {"write", "read"}
    assert all(rate > 0 for each in found.values() for rate in each["mb_a_second"].values())
    assert not [*tmp_path.rglob("*.safetensors")]
