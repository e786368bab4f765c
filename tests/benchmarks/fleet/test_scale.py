"""A slice of `make bench-scale`, without what it says about time: other tests may run beside."""

from pathlib import Path
from typing import Any, cast

import grpc
import pytest
import redis

from kakeya_bench.report.progress import Progress
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1 import runtime_pb2_grpc
from tests.benchmarks.bench import Stage
from tests.benchmarks.calls import worker_without_model
from tests.benchmarks.fleet import idle_sessions, lives, scale, tokens
from tests.benchmarks.fleet.tokens import Amounts
from tests.integration.processes import runtime

linux = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="another process's clock is read on Linux")


@linux
def test_fleets_join_are_watched_and_open_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = scale.ScaleSettings.parse(
        [
            *("--workers", "3,2", "--idle-seconds", "0.1", "--creates", "2", "--rounds", "0", "--restart-seconds", "1"),
            *("--idle-sessions", "5,2", "--output", str(tmp_path / "pictures")),
        ]
    )
    monkeypatch.setattr(scale, "_NUM_LIVES_BESIDE", 2)
    monkeypatch.setattr(scale, "_BESIDE_SECONDS", 0.1)
    stage = Stage(tmp_path, cast(Progress, _Silent()))
    found, verdicts = scale.measure(settings, stage)
    assert [*found] == [
        "2 idle sessions",
        "5 idle sessions",
        "2 workers",
        "3 workers",
        "seconds_for_3_workers_to_join",
        "router_core_share_at_3_workers",
        "create_ratio_3_to_2_workers",
        "restart",
    ]
    assert all(value > 0 for name in ("2 workers", "3 workers") for value in found[name].values())
    assert [verdict.gate for verdict in verdicts[-6:]] == [
        *("joining", "idle", "placing", "restart", "left behind", "refused")
    ]
    assert [verdict.gate for verdict in verdicts[:-6]] == [
        *("idle sessions, router_ms_a_life", "idle sessions, redis_ms_a_life", "idle sessions, life_p50")
    ]
    assert found["restart"]["created"] > 0
    assert {each.name for each in (tmp_path / "pictures").iterdir()} == {"workers.png", "idle-sessions.png"}
    assert [verdict.outcome for verdict in verdicts[-2:]] == ["passed", "passed"], found


def test_each_bound_of_idle_sessions_is_judged() -> None:
    found = {
        "1,000 idle sessions": {"router_ms_a_life": 10.0, "redis_ms_a_life": 1.0, "life_p50": 1.0},
        "100,000 idle sessions": {"router_ms_a_life": 99.0, "redis_ms_a_life": 99.0, "life_p50": 99.0},
        "1,000,000 idle sessions": {"router_ms_a_life": 13.0, "redis_ms_a_life": 1.31, "life_p50": 1.2},
    }
    assert [each.outcome for each in idle_sessions.verdicts(found)] == ["passed", "failed", "passed"]


@linux
async def test_copies_of_a_session_are_sessions(tmp_path: Path) -> None:
    with runtime(tmp_path, tmp_path, num_workers=0) as made, worker_without_model.joining([made]):
        async with grpc.aio.insecure_channel(made.address) as channel:
            stub: Any = runtime_pb2_grpc.RuntimeServiceStub(channel)
            session_id = await idle_sessions.parked(stub)
            with redis.Redis.from_url(made.redis.url, protocol=2, decode_responses=True) as store:
                copies = idle_sessions.Copies(store, session_id)
                for number in (2, 5):
                    copies.grow(number)
            listed = await stub.ListSessions(api.ListSessionsRequest(page_size=100))
            assert {each.session_id for each in listed.sessions} == {session_id, *map(copies.id_of, range(1, 6))}
            for each in (session_id, copies.id_of(1), copies.id_of(5)):
                info = await stub.GetSessionInfo(api.GetSessionInfoRequest(session_id=each))
                assert (info.state, info.history_length) == (api.SESSION_STATE_PARKED, 38)
            assert len(await idle_sessions.resume(stub, copies, 9)) == 5
            (*_, last) = [
                each async for each in stub.Generate(api.GenerateRequest(session_id=copies.id_of(5), max_tokens=1))
            ]
            assert last.done.history_length == 40
            closed = await stub.CloseSession(api.CloseSessionRequest(session_id=copies.id_of(2)))
            assert closed.final_history_length == 39
            info = await stub.GetSessionInfo(api.GetSessionInfoRequest(session_id=session_id))
            assert info.history_length == 38


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
