"""A lane of one backend goes on on another where that is allowed: both store K rotated at its own index."""

from pathlib import Path

import pytest

from kakeya_shared.errors import SnapshotRefused
from kakeya_worker.conformance.checkpoints import VARIANTS, Variant
from kakeya_worker.conformance.declaration import Mode
from kakeya_worker.conformance.driving import open_session
from kakeya_worker.conformance.measure import deviation
from kakeya_worker.conformance.subject import Case, Subject
from kakeya_worker.engine import snapshot
from kakeya_worker.engine.geometry import LaneGeometry

GEOMETRY = LaneGeometry(sink=4, window=40, chunk=32)


@pytest.mark.parametrize("variant", VARIANTS[:1] + VARIANTS[-1:], ids=lambda variant: variant.name)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("source", "target"), [("torch", "mlx"), ("mlx", "torch")])
def test_a_snapshot_is_restored_by_another_backend(
    tmp_path: Path, variant: Variant, dtype: str, source: str, target: str
) -> None:
    subjects = [Subject(Case(name, variant, Mode(dtype, dtype, dtype)), tmp_path) for name in (source, target)]
    variant.write(tmp_path, dtype)
    of_source, of_target = (open_session(subject.fresh(GEOMETRY), GEOMETRY) for subject in subjects)
    history = variant.history(180)
    of_source.append(history[:150])
    taken = snapshot.take(of_source.lane, of_source.verifier)
    with pytest.raises(SnapshotRefused, match="fingerprint"):
        snapshot.restore([taken], of_target.lane, of_target.verifier)
    snapshot.restore([taken], of_target.lane, of_target.verifier, inexact=True)
    law = subjects[0].law(history, GEOMETRY.sink, GEOMETRY.window)
    assert deviation(dtype, of_target.logits(), law[149]) <= 1
    assert deviation(dtype, of_target.append(history[150:]), law[179]) <= 1
