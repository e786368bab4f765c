"""A slice of `make fuzz`."""

import secrets
from pathlib import Path

import pytest
from rich.console import Console

from tests.fuzz.__main__ import fuzz
from tests.fuzz.fuzz_run import Plan

NUM_CALLS = 3_000


@pytest.mark.heavy
def test_hostile_calls_break_nothing_and_leave_nothing(tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    print(f"FUZZ_SEED={seed}")
    report = fuzz(tmp_path, tmp_path, Plan(NUM_CALLS, seed), Console(quiet=True))
    assert report.tally.violations == []
    assert report.tally.num_calls >= NUM_CALLS
    assert report.num_witness_turns > 0
