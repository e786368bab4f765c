"""A slice of `make leavers-http`."""

from pathlib import Path

import pytest

from tests.soak.leavers_http.proof import LeaversHttp

NUM_LEAVERS = 100


@pytest.mark.heavy
def test_nothing_stays_of_clients_that_leave(tmp_path: Path) -> None:
    report = LeaversHttp(leavers=NUM_LEAVERS).run(tmp_path)
    assert report.violations == []
    assert report.facts["leavers"] == NUM_LEAVERS
