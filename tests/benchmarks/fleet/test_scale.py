"""A slice of `make bench-scale`, without what it says about time: other tests may run beside."""

from pathlib import Path
from typing import Any, cast

import pytest

from kakeya_bench.report.progress import Progress
from tests.benchmarks.bench import Stage
from tests.benchmarks.fleet import lives, scale, tokens
from tests.benchmarks.fleet.tokens import Amounts

linux = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="another process's clock is read on Linux")


@linux
def test_fleets_join_are_watched_and_open_sessions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = scale.ScaleSettings.parse(
        ["--workers", "3,2", "--idle-seconds", "0.1", "--creates", "2", "--rounds", "0", "--restart-seconds", "1"]
    )
    stage = Stage(tmp_path, cast(Progress, _Silent()))
    found, verdicts = scale.measure(settings, stage)
    assert [*found] == [
        "2 workers",
        "3 workers",
        "seconds_for_3_workers_to_join",
        "router_core_share_at_3_workers",
        "create_ratio_3_to_2_workers",
        "restart",
    ]
    assert all(value > 0 for name in ("2 workers", "3 workers") for value in found[name].values())
    assert [verdict.gate for verdict in verdicts] == ["joining", "idle", "placing", "restart", "left behind", "refused"]
    assert found["restart"]["created"] > 0
    assert [verdict.outcome for verdict in verdicts[-2:]] == ["passed", "passed"], found


def test_each_bound_is_judged() -> None:
    found = {
        "seconds_for_1000_workers_to_join": 31.0,
        "router_core_share_at_1000_workers": 0.25,
        "create_ratio_1000_to_10_workers": 1.31,
    }
    assert [each.outcome for each in scale.verdicts(found, 10, 1000)] == ["failed", "passed", "failed"]


def test_each_bound_of_tokens_is_judged() -> None:
    found = {
        "router_us_a_token_paced_over_aio": 1.31,
        "router_us_a_token_full_over_aio": 1.0,
        "router_ms_a_call_over_aio": 1.91,
        "worker_us_a_token_over_in_process": 1.2,
        "redis_us_a_token": 25.1,
    }
    outcomes = [each.outcome for each in scale.verdicts_of_tokens(found)]
    assert outcomes == ["failed", "passed", "failed", "passed", "failed"]


@linux
@pytest.mark.heavy
def test_tokens_are_relayed_by_both_and_a_worker_serves_what_its_engine_makes(tmp_path: Path) -> None:
    steps: list[str] = []
    amounts = Amounts(rounds=2, paced_tokens=3, full_tokens=20, calls=3, nano_tokens=3)
    found = tokens.of_relaying(tmp_path / "relaying", amounts, steps.append)
    found |= tokens.of_worker(tmp_path / "nano", amounts, steps.append)
    assert steps == [tokens.PACED, tokens.FULL, tokens.CALL, "kakeya-nano", "kakeya-nano"]
    for name in ("router_us_a_token_paced", "router_us_a_token_full", "router_ms_a_call"):
        assert found[f"{name}_over_aio"] > 0
    for name in ("us a token paced", "us a token full", "ms a call"):
        assert [*found[name]] == ["router", "pass-through", "redis"]
        assert all(value > 0 for value in found[name].values())
    assert found["worker_us_a_token_over_in_process"] > 0


def test_each_bound_of_lives_is_judged() -> None:
    found = {"router_ms_a_life": 14.0, "worker_ms_a_life": 14.1, "create_p99_ms_under_pressure": 301.0}
    assert [each.outcome for each in lives.verdicts(found)] == ["passed", "failed", "failed"]


@linux
@pytest.mark.heavy
def test_sessions_live_and_are_parked_for_others(tmp_path: Path) -> None:
    steps: list[str] = []
    found = lives.of_lives(tmp_path / "lives", num_lives=3, num_crowded=3, step=steps.append)
    assert steps == ["lives", "pressure"]
    assert all(value > 0 for value in found.values())


class _Silent:
    def show(self, *_: Any) -> None:
        """Nobody looks."""
