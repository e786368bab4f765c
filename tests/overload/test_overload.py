"""A slice of `make overload`, without what it says about time: other tests may be running beside it."""

import secrets
from pathlib import Path

import pytest
from rich.console import Console

from tests.overload.__main__ import overload
from tests.overload.overload_run import Plan

SECONDS = 25.0


@pytest.mark.heavy
def test_nobody_is_overtaken_or_forgotten_and_nothing_is_left(tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    print(f"OVERLOAD_SEED={seed}")
    report = overload(tmp_path, Plan(SECONDS, seed), Console(quiet=True))
    assert report.violations == []
