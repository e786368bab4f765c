"""Slices of `make bench-router`, `make bench-http` and `make bench-request`, without what they say about time: other
tests may run beside.
"""

import asyncio
import sys
from pathlib import Path

import pytest

from kakeya_bench.rivals.command import CommandFailed
from tests.benchmarks.calls import http_overhead, request_cost, router_cost
from tests.benchmarks.calls.router_cost import CALLS, GROUP, Pair, Side

linux = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="another process's clock is read on Linux")


def _pair(ratio: float) -> Pair:
    def side(factor: float) -> Side:
        return Side(None, (), {name: [0.002] * GROUP for name in CALLS}, 0, {name: [0.01 * factor] for name in CALLS})

    return side(1.0), side(ratio)


def test_the_verdict_is_the_upper_end_of_the_interval() -> None:
    uneven = router_cost.figures([_pair(2.0), _pair(0.5)])
    assert uneven["Generate"]["ratio"] == pytest.approx(1.0)
    assert uneven["Generate"]["interval_95"] == pytest.approx([0.5, 2.0])
    assert {verdict.outcome for verdict in router_cost.verdicts(uneven)} == {"failed"}
    found = router_cost.figures([_pair(1.04)] * 3)
    assert found["Generate"]["interval_95"] == pytest.approx([1.04, 1.04])
    assert {verdict.outcome for verdict in router_cost.verdicts(found)} == {"passed"}
    assert found["AppendTokens"]["cpu_ms"]["base"] == pytest.approx(10 / GROUP)
    assert found["AppendTokens"]["wall_p50_ms"] == pytest.approx({"base": 2.0, "here": 2.0})


def test_what_is_no_commit_is_said() -> None:
    with pytest.raises(CommandFailed, match="'no-such-commit' is no commit"):
        router_cost.commit_of("no-such-commit")


@linux
@pytest.mark.heavy
def test_both_routers_are_measured(tmp_path: Path) -> None:
    python = Path(sys.executable)
    (pair,) = router_cost.measured([python, python], tmp_path, num_pairs=1, num_groups=2, on_group=print)
    for side in pair:
        for name in CALLS:
            assert len(side.seconds[name]) == 2 * GROUP
            assert min(side.cpu_seconds[name]) > 0.0


@pytest.mark.heavy
def test_the_sdk_and_http_give_the_same_answer_and_are_measured(tmp_path: Path) -> None:
    answered: list[str] = []
    with http_overhead.runtime_without_model(tmp_path) as made:
        pair = asyncio.run(http_overhead.compare(made, 10, answered.append))
    assert len(answered) > 10, "some to warm up"
    for side in pair:
        for name in http_overhead.BOUND_MS:
            assert len(side[name]) == 10
            assert min(side[name]) > 0.0


@linux
@pytest.mark.heavy
def test_the_processor_time_of_requests_is_measured(tmp_path: Path) -> None:
    with http_overhead.runtime_without_model(tmp_path) as made:
        found = request_cost.measured(made, 2, 10, print)
    assert {name: len(each) for name, each in found.items()} == {"shim": 2, "router": 2}
    assert all(milliseconds > 0.0 for each in found.values() for milliseconds in each)
