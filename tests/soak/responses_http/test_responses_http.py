"""A slice of `make responses-http`, and that it notices what is wrong."""

from pathlib import Path

import pytest

from tests.soak.responses_http.asking import Told
from tests.soak.responses_http.proof import ResponsesHttp

NUM_CASES, NUM_KILLS, SEED = 300, 2, 7


@pytest.mark.heavy
def test_each_branch_is_its_own(tmp_path: Path) -> None:
    report = ResponsesHttp(cases=NUM_CASES, kills=NUM_KILLS, seed=SEED).run(tmp_path)
    assert report.violations == []
    assert report.facts["requests"] >= NUM_CASES


def test_an_event_that_comes_twice_is_noticed() -> None:
    for numbers in ([0, 1, 1], [0, 2], [1]):
        told = Told()
        for number in numbers:
            told.hear({"type": "response.in_progress", "sequence_number": number})
        assert told.faults
