"""A slice of `make nodes`."""

from pathlib import Path

import pytest

from tests.soak.nodes.proof import Nodes


@pytest.mark.heavy
def test_a_few_changes(tmp_path: Path) -> None:
    report = Nodes(sequences=1, seed=1).run(tmp_path)
    assert report.violations == []
    assert report.facts["num_sessions"] > 0
    assert report.facts["num_probes"] > 0
