"""A slice of `make fuzz-http`."""

from pathlib import Path

import pytest

from tests.soak.fuzz_http.proof import FuzzHttp

NUM_CASES = 150


@pytest.mark.heavy
def test_every_answer_is_as_documented(tmp_path: Path) -> None:
    report = FuzzHttp(cases=NUM_CASES).run(tmp_path)
    assert report.violations == []
    assert report.facts["cases"] == NUM_CASES
