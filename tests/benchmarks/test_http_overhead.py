"""A slice of `make bench-http`, without what it says about time: other tests may be running beside it."""

import asyncio
from pathlib import Path

import pytest

from tests.benchmarks.http_overhead import BOUND_MS, compare, runtime_without_model

NUM_ANSWERS = 10


@pytest.mark.heavy
def test_both_ways_give_the_same_answer_and_are_measured(tmp_path: Path) -> None:
    answered: list[None] = []
    with runtime_without_model(tmp_path) as made:
        pair = asyncio.run(compare(made, NUM_ANSWERS, lambda: answered.append(None)))
    assert len(answered) > NUM_ANSWERS, "some to warm up"
    for side in pair:
        for name in BOUND_MS:
            assert len(side.seconds[name]) == NUM_ANSWERS
            assert min(side.seconds[name]) > 0.0
