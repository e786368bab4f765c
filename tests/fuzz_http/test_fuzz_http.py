"""A slice of `make fuzz-http`."""

import secrets
from pathlib import Path

import pytest
from rich.console import Console

from tests.fuzz_http.__main__ import fuzz_http
from tests.fuzz_http.fuzz_run import Plan

NUM_CASES = 150


@pytest.mark.heavy
def test_every_answer_is_as_documented(tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    print(f"FUZZ_HTTP_SEED={seed}")
    report = fuzz_http(tmp_path, Plan(NUM_CASES, seed), Console(quiet=True))
    assert report.tally.violations == []
    assert report.tally.num_cases == NUM_CASES
