"""`make bench-snapshots` on a small model: that it measures files and times, and that its bounds can break."""

from pathlib import Path
from typing import Any

import pytest
from rich.progress import Progress

from kakeya_shared import installed_models
from tests.benchmarks import snapshot_figures, snapshots
from tests.benchmarks.snapshot_figures import Decodes, Figures, Resumes, Size, num_kept
from tests.benchmarks.snapshots import Plan


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [(0, 1, 1), (0, 68, 68), (0, 69, 68), (2, 69, 66), (0, 1_000, 68), (990, 1_000, 10), (900, 1_000, 64)],
)
def test_what_a_session_keeps_of_a_stretch(start: int, length: int, expected: int) -> None:
    assert num_kept(start, length, 4, 64) == expected


def test_a_file_is_known_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "pool.a-b_c-2-10-0f0f0f0f-63.safetensors"
    path.write_bytes(bytes(53 * 2048 + 1000))
    assert Size.of(path, 4, 4_092, 2048) == Size(10, 63, 53, 53 * 2048, 53 * 2048 + 1000)


@pytest.mark.parametrize(("beyond_bytes", "is_kept"), [(0, True), (165_536, True), (165_537, False), (-1, False)])
def test_the_bound_of_a_file(beyond_bytes: int, is_kept: bool) -> None:
    assert Size(0, 1_000, 1_000, 10_000_000, 10_000_000 + beyond_bytes).is_kept is is_kept


def resumes(park: float = 0.1, write: float = 1.0) -> Resumes:
    """Prefills of 2, 4 and 60 seconds: what takes long once does not count."""
    return Resumes(1_000, [2.0, 60.0, 4.0], [write] * 3, [park] * 3, [0.1, 9.0, 0.05])


def test_the_bound_of_a_resume() -> None:
    assert resumes().ratio == pytest.approx(20.0)
    assert resumes(park=0.099).is_kept
    assert not resumes(park=0.101).is_kept
    assert resumes().ratio_with_write == pytest.approx(4 / 1.2)
    assert resumes().prefill_tokens_per_second == 250.0


def decodes(stall: float = 0.0) -> Decodes:
    return Decodes([[0.1] * 50, [0.1] * 50], [[0.1] * 50, [0.1] * 49 + [0.1 + stall]], written_bytes=10**6)


def test_a_stall_of_one_token_counts() -> None:
    assert decodes().slowdown == pytest.approx(0.0)
    assert decodes(stall=0.49).is_kept
    assert not decodes(stall=0.51).is_kept
    assert decodes().written_bytes_per_second == pytest.approx(10**5)


@pytest.mark.parametrize(
    "broken",
    [
        {"sizes": [Size(0, 1, 1, 1_000, 1_100), Size(0, 2, 2, 2_000, 200_000)]},
        {"resumes": resumes(park=1.0)},
        {"decodes": decodes(stall=1.0)},
    ],
)
def test_one_broken_bound_is_enough(broken: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    kept: dict[str, Any] = {
        "sizes": [Size(0, 1, 1, 1_000, 1_100)], "resumes": resumes(park=0.05), "decodes": decodes()
    }  # fmt: skip
    assert Figures(**kept).is_kept
    figures = Figures(**(kept | broken))
    assert not snapshot_figures.as_dict(figures)["is_kept"]
    snapshot_figures.show(figures)
    assert capsys.readouterr().out.count("BROKEN") == 1


@pytest.mark.heavy
def test_a_small_run(tmp_path: Path) -> None:
    """All but the bounds of time: other tests may be running beside it."""
    plan = Plan(window=252, lengths=(1, 10, 63, 200, 300), num_tokens=200, num_rounds=2, seconds=0.5)
    model = installed_models.directory("kakeya-nano")
    with Progress(disable=True) as progress:
        figures = snapshots.measure(model, tmp_path, plan, progress)
    found = {(size.start, size.length, size.num_tokens) for size in figures.sizes}
    since = {(10, 63, 53), (63, 200, 137)}  # at 300 more would have come since 10 than is kept: that one is whole
    assert found == since | {(0, 1, 1), (0, 10, 10), (0, 63, 63), (0, 200, 200), (0, 300, 256)}
    assert all(size.is_kept for size in figures.sizes)
    for name in ("prefill", "write", "park", "resume"):
        assert len(getattr(figures.resumes, name)) == 2
        assert min(getattr(figures.resumes, name)) > 0.0
    for stretches in (figures.decodes.alone, figures.decodes.beside):
        assert len(stretches) >= 2
        assert min(map(sum, stretches)) > 0.25, "tokens all along"
    whole_bytes = 200 * 1_536
    assert figures.decodes.written_bytes > len(figures.decodes.beside) * whole_bytes
