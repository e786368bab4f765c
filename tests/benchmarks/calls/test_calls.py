"""Slices of the benches of calls (`make bench-router`, `bench-watched`, `bench-http`, `bench-request` and
`bench-sdk-typescript`), without what they say about time: other tests may run beside.
"""

import asyncio
import subprocess
from pathlib import Path

import numpy as np
import pytest

from kakeya_bench.rivals.command import CommandFailed
from tests.benchmarks.calls import (
    http_overhead,
    request_cost,
    router_cost,
    sdk_typescript,
    side_by_side,
    token_ages,
    watched_cost,
    worker_without_model,
)
from tests.benchmarks.calls.router_cost import CALLS, GROUP, SIDES, Pair, Side
from tests.integration.otlp_receiver import otlp_receiver
from tests.integration.processes import asking_for_keys, runtime

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


def test_to_be_watched_is_judged_by_the_upper_end_of_the_median() -> None:
    found = watched_cost.compared([(1e-3, 1.005e-3)] * 3, "metrics", 1.01)
    assert found["us_a_token"] == pytest.approx({"unwatched": 1000.0, "metrics": 1005.0})
    assert found["interval_95"] == pytest.approx([1.005, 1.005])
    of_router = watched_cost.of_routers([_pair(1.0), _pair(1.0), _pair(1.1)], "metrics", 1.02)
    assert of_router["ratio"] == pytest.approx(1.0)
    assert of_router["interval_95"][1] == pytest.approx(1.1)
    assert of_router["us_a_token"]["unwatched"] == pytest.approx(1e6 * 0.01 / GROUP / router_cost.NUM_GENERATED)
    judged = watched_cost.verdicts({"decoding": found, "router": of_router})
    assert [verdict.outcome for verdict in judged] == ["passed", "failed"]


def test_two_sdks_are_judged_by_the_ends_of_intervals() -> None:
    found = {
        "later streams": sdk_typescript.ratio({"python": [100.0, 200.0], "typescript": [50.0, 100.0]}),
        "left by typescript": {"stop_ms": {"p95": 51.0}, "num_grown_later": 0},
        "tokens_more": sdk_typescript.tokens_more({"python": [1, 2, 3], "typescript": [2, 3, 4]}),
    }
    assert found["later streams"]["ratio"] == pytest.approx(0.5)
    assert found["tokens_more"] == {"mean": 1.0, "interval_95": [1.0, 1.0]}
    assert [each.outcome for each in sdk_typescript.verdicts(found)] == ["passed", "failed", "passed", "failed"]


def test_ages_are_told_by_the_clock_that_workers_step_by() -> None:
    made = 7.0 + np.arange(4) / token_ages.STEPS_A_SECOND
    late = np.array([0.003, 0.001, 0.060, 0.002])  # one is held up for longer than a step
    assert token_ages.ages([*(made + late)]) == pytest.approx(late)


def test_the_ratio_of_ages_is_over_pairs_of_rounds() -> None:
    sides = [token_ages.Side(None, (), [np.full(8, 0.001 * factor), np.full(8, 0.004)]) for factor in (1.0, 4.0)]
    found = token_ages.figures(sides, SIDES)
    assert found["age of a token, p50"]["ms"] == pytest.approx({"base": 2.5, "here": 4.0})
    assert found["age of a token, p99"]["ratio"] == pytest.approx(2.0)
    assert {verdict.outcome for verdict in token_ages.verdicts(found)} == {"failed"}


def test_what_is_no_commit_is_said() -> None:
    with pytest.raises(CommandFailed, match="'no-such-commit' is no commit"):
        router_cost.commit_of("no-such-commit")


def test_a_worker_that_cannot_join_is_not_waited_for(tmp_path: Path) -> None:
    with (
        runtime(tmp_path, tmp_path, num_workers=0, environment=asking_for_keys()) as made,  # and it has none
        pytest.raises(CommandFailed, match="ended before it had joined"),
        worker_without_model.joining([made]),
    ):
        pass


@linux
@pytest.mark.heavy
def test_both_routers_are_measured(tmp_path: Path) -> None:
    kinds = [side_by_side.Kind(name) for name in SIDES]
    (pair,) = router_cost.measured(kinds, tmp_path, num_pairs=1, num_groups=2, on_group=print)
    for side in pair:
        for name in CALLS:
            assert len(side.seconds[name]) == 2 * GROUP
            assert min(side.cpu_seconds[name]) > 0.0
    with token_ages.standing(kinds, tmp_path / "ages") as made:
        for aged in asyncio.run(token_ages.compare(made, 1, print, num_tokens=20)):
            assert [(len(each), each.min() >= 0) for each in aged.ages] == [(20 * token_ages.NUM_STREAMS, True)]


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


@pytest.mark.heavy
async def test_watched_and_unwatched_runtimes_answer_in_turn(tmp_path: Path) -> None:
    with otlp_receiver() as receiver:
        kinds = watched_cost.kinds(receiver)
        sides = [kinds[watched_cost.UNWATCHED], kinds["traces"]]
        with watched_cost.whole_runtimes(sides, tmp_path) as made:
            assert "none" in {each.metrics for each in made[0].routers}
            pairs = await watched_cost.decoded(made, 2, 2, 0.05, print)
    assert len(pairs) == 2
    assert min(seconds for pair in pairs for seconds in pair) > 0.0
    assert {span.service for span in receiver.spans} == {"kakeya-router", "kakeya-worker"}


@linux
@pytest.mark.heavy
@pytest.mark.skipif(not sdk_typescript.SDK.joinpath("node_modules").exists(), reason="the TypeScript SDK needs node")
def test_both_sdks_stream_and_leave(tmp_path: Path) -> None:
    subprocess.run(["npm", "run", "--silent", "build"], cwd=sdk_typescript.SDK, check=True, capture_output=True)
    settings = sdk_typescript.SdkSettings(pairs=2, tokens=50, warm=1, leavings=2)
    found = sdk_typescript.measured(settings, tmp_path, print)
    for name in sdk_typescript.COMMANDS:
        assert found["later streams"]["cpu_us_a_token"][name] > 0
        assert found[f"left by {name}"]["stop_ms"]["p50"] > 0
        assert found[f"left by {name}"]["num_grown_later"] == 0
