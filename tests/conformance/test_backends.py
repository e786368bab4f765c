"""A lane of one backend goes on on another where that is allowed: both store K rotated at its own index."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from kakeya_shared.errors.tree import SnapshotRefused
from kakeya_worker.conformance.declaration import Mode
from kakeya_worker.conformance.tools.checkpoints import VARIANTS, Variant
from kakeya_worker.conformance.tools.driving import open_session
from kakeya_worker.conformance.tools.measure import deviation
from kakeya_worker.conformance.tools.subject import Case, Subject
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.snapshots import snapshot

GEOMETRY = LaneGeometry(sink=4, window=40, chunk=32)


@pytest.mark.parametrize("variant", VARIANTS[:1] + VARIANTS[-1:], ids=lambda variant: variant.name)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("source", "target"), [("torch", "mlx"), ("mlx", "torch")])
def test_a_snapshot_is_restored_by_another_backend(
    tmp_path: Path, variant: Variant, dtype: str, source: str, target: str
) -> None:
    subjects = [Subject(Case(name, variant, Mode(dtype, dtype, dtype)), tmp_path) for name in (source, target)]
    variant.write(tmp_path, dtype)
    check_continuation(subjects, dtype, variant.history(180))


@pytest.mark.parametrize("types", [("float32", "bfloat16"), ("bfloat16", "float32")], ids="_to_".join)
@pytest.mark.parametrize(("source", "target"), [("torch", "mlx"), ("mlx", "torch")])
def test_and_in_another_type(tmp_path: Path, source: str, target: str, types: tuple[str, str]) -> None:
    """As near the law as the coarser of the two is."""
    variant = VARIANTS[0]
    subjects = [
        Subject(Case(name, variant, Mode(dtype, dtype, dtype)), tmp_path)
        for name, dtype in zip((source, target), types, strict=True)
    ]
    variant.write(tmp_path, "bfloat16")
    check_continuation(subjects, "bfloat16", variant.history(180))


def check_continuation(subjects: Sequence[Subject], dtype: str, history: tuple[int, ...]) -> None:
    """The second goes on where the first stood, within the tolerance of a type."""
    of_source, of_target = (open_session(subject.fresh(GEOMETRY), GEOMETRY) for subject in subjects)
    of_source.append(history[:150])
    taken = snapshot.take(of_source.lane, of_source.verifier)
    with pytest.raises(SnapshotRefused, match="fingerprint"):
        snapshot.restore([taken], of_target.lane, of_target.verifier)
    snapshot.restore([taken], of_target.lane, of_target.verifier, inexact=True)
    law = subjects[0].law(history, GEOMETRY.sink, GEOMETRY.window)
    assert deviation(dtype, of_target.logits(), law[149]) <= 1
    assert deviation(dtype, of_target.append(history[150:]), law[179]) <= 1
