"""A slice of `make overload-http`, without what it says about time: other tests may be running beside it."""

from pathlib import Path

import pytest
from rich.console import Console

from tests.overload_http.__main__ import overload_http
from tests.overload_http.overload_run import Plan

SECONDS = 12.0


@pytest.mark.heavy
def test_the_line_is_bounded_and_nothing_is_left(tmp_path: Path) -> None:
    report = overload_http(tmp_path, Plan(SECONDS), Console(quiet=True))
    assert report.violations == []
