"""A slice of `make leavers-http`."""

import secrets
from pathlib import Path

import pytest
from rich.console import Console

from tests.leavers_http.__main__ import leavers_http
from tests.leavers_http.leavers_run import Plan

NUM_LEAVERS = 100


@pytest.mark.heavy
def test_nothing_stays_of_clients_that_leave(tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    print(f"LEAVERS_SEED={seed}")
    report = leavers_http(tmp_path, Plan(NUM_LEAVERS, seed), Console(quiet=True))
    assert report.violations == []
    assert sum(report.departures.counts.values()) == NUM_LEAVERS
