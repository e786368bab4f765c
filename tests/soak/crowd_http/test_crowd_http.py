"""A slice of `make crowd-http`, without what it says about time: other tests may be running beside it."""

from pathlib import Path

import pytest

from tests.soak.crowd_http.proof import CrowdHttp


@pytest.mark.heavy
def test_a_small_crowd(tmp_path: Path) -> None:
    # Twenty times what is kept: on a slow machine many are over before the last ones come.
    some = CrowdHttp(kills=1, heads=12, talks=0, singles=0, kept=40, idle_seconds=4, parked_sessions=2, seed=7)
    assert some.run(tmp_path).violations == []
