"""The turns of a run in figures, over all of it and by stretches of time."""

from dataclasses import replace
from typing import Any

from kakeya_bench.session.report import aggregate, buckets
from kakeya_bench.statistics.distribution import distribution
from tests.unit.bench.session.runs import changed, failed, run


def test_times_are_of_turns_after_the_warm_up_and_sizes_of_all_that_did_not_fail() -> None:
    turns = [*run(20), replace(failed(21), num_new_tokens=99, worker_rss_bytes=1 << 40)]
    turns[1] = replace(turns[1], wall_seconds=99.0, time_to_first_token_seconds=99.0, worker_rss_bytes=None)
    turns[9] = replace(turns[9], num_tokens_out=0, time_to_first_token_seconds=None)
    agg: dict[str, Any] = aggregate(turns, 2)
    timed = turns[2:20]
    assert {name: agg[name] for name in ("turn_s", "prefill_s", "decode_s")} == {
        "turn_s": distribution(turn.wall_seconds for turn in timed),
        "prefill_s": distribution(turn.prefill_seconds for turn in timed),
        "decode_s": distribution(turn.decode_seconds for turn in timed),
    }
    first = [turn.time_to_first_token_seconds for turn in timed]
    assert agg["time_to_first_token_s"] == distribution(first)
    assert agg["time_to_first_token_per_new_token_s"] == distribution(each and each / 30 for each in first)
    assert agg["decode_per_token_s"] == distribution([0.7 / 8] * 17)
    assert (agg["num_turns"], agg["num_errors"], agg["num_tokens_in"], agg["num_tokens_out"]) == (21, 1, 600, 152)
    assert agg["num_evicted_tokens"] == sum(turn.num_evicted_tokens for turn in turns)
    assert agg["kv_live_bytes"] == {"min": 38_000, "mean": 66_500.0, "max": 68_000}
    assert agg["worker_rss_bytes"]["max"] == 300 << 20


def test_a_drift_is_seen() -> None:
    turns = changed(run(100, wall_seconds=1.0), lambda _: {"wall_seconds": 1.5}, start=50)
    assert aggregate(turns, 0)["latency_drift_p50_s"] == 0.5
    assert aggregate(turns[:9], 0)["latency_drift_p50_s"] is None


def test_a_short_run_is_cut_in_tenths_and_each_turn_is_in_one() -> None:
    found: list[dict[str, Any]] = buckets([*run(100), failed(1)])  # a turn a second; the one that failed takes long
    assert (len(found), found[0]["start_s"], found[-1]["end_s"]) == (10, 0.0, 601.0)
    assert [bucket["num_turns"] for bucket in found] == [62, 39, *[0] * 8]
    assert [bucket["num_errors"] for bucket in found[:2]] == [1, 0]
    assert found[0]["turn_s"] == distribution(turn.wall_seconds for turn in run(61))
    assert (found[0]["kv_live_bytes"]["min"], found[2]["turn_s"], found[2]["kv_live_bytes"]) == (38_000, None, None)


def test_a_long_run_is_cut_in_ten_minutes() -> None:
    turns = changed(run(480), lambda turn: {"started_seconds": (turn.index - 1) * 30.0})
    found: list[dict[str, Any]] = buckets(turns)
    assert [bucket["num_turns"] for bucket in found] == [20] * 24
    assert [bucket["start_s"] for bucket in found] == [600.0 * number for number in range(24)]


def test_runs_of_nothing_have_no_figures() -> None:
    assert buckets([]) == []
    assert aggregate([], 5)["turn_s"] is None
    (only,) = buckets(run(1, started_seconds=0.0, wall_seconds=0.0))
    assert only["num_turns"] == 1
