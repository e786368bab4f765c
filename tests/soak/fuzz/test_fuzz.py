"""A slice of `make fuzz`."""

from pathlib import Path

import pytest

from tests.soak.fuzz.proof import Fuzz

NUM_CALLS = 3_000


@pytest.mark.heavy
def test_hostile_calls_break_nothing_and_leave_nothing(tmp_path: Path) -> None:
    report = Fuzz(calls=NUM_CALLS).run(tmp_path)
    assert report.violations == []
    assert report.facts["calls"] >= NUM_CALLS
    assert report.facts["witness_turns"] > 0
