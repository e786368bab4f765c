"""A slice of `make crowd-http`, without what it says about time: other tests may be running beside it."""

from pathlib import Path

import pytest

from tests.soak.crowd_http.proof import CrowdHttp


@pytest.mark.heavy
def test_a_small_crowd(tmp_path: Path) -> None:
    slice_of_it = CrowdHttp(
        kills=1, heads=20, talks=40, singles=100, kept=60, idle_seconds=2, parked_sessions=8, seed=7
    )
    assert slice_of_it.run(tmp_path).violations == []
