"""The JSON document of `kakeya bench session`."""

import json
from dataclasses import replace
from datetime import datetime

from kakeya_bench.session.report import Report
from kakeya_bench.session.settings import SessionSettings
from tests.unit.bench.session.runs import FACTS, RSS, report, run

DISTRIBUTION = {"min", "mean", "max", "p50", "p90", "p95", "p99"}


def test_all_that_a_report_says() -> None:
    settings = SessionSettings.parse(["--output", "/nowhere"])
    read = json.loads(json.dumps(Report(settings=settings, facts=FACTS, turns=run(200)).document(), allow_nan=False))
    assert list(read) == [
        "schema", "state", "started_at", "written_at", "options", "environment", "model", "gates", "agg",
        "buckets_10min", "turns",
    ]  # fmt: skip
    assert (read["schema"], read["state"]) == ("kakeya.bench.session/1", "running")
    started, written = (datetime.fromisoformat(read[name]) for name in ("started_at", "written_at"))
    assert started <= written
    assert written.utcoffset() is not None
    assert read["environment"]["versions"]["kakeya"]
    assert read["model"] == FACTS.document()
    gates = read["gates"]
    assert list(gates) == ["kv_bounded", "rss_bounded", "prefill_bounded", "errors", "exact"]
    assert [gate["outcome"] for gate in gates.values()] == ["passed"] * 4 + ["skipped"]
    assert {tuple(gate) for gate in gates.values()} == {("outcome", "formula", "reason", "figures")}
    assert {name: set(gate["figures"]) for name, gate in gates.items()} == {
        "kv_bounded": {"kv_bytes_per_token", "num_turns"},
        "rss_bounded": {"one"},
        "prefill_bounded": {"ratio", "low", "high", "half_width", "num_head_turns", "num_tail_turns"},
        "errors": {"num_errors"},
        "exact": set(),
    }
    assert set(gates["rss_bounded"]["figures"]["one"]) == {"head_bytes", "tail_bytes", "max_bytes", "allowance_bytes"}


def test_what_was_asked_for() -> None:
    flags = ["--duration-s", "9", "--turn-spacing-s", "0.5", "--sessions", "2", "--prompts", "a/file", "--window", "64"]
    assert report([], *flags).document()["options"] == {
        "model": None, "tokenizer": None, "num_random_tokens": None, "prompts": "a/file", "uses_template": True,
        "max_tokens": 64, "ignores_eos": False, "sink": None, "window": 64, "seed": 0, "timeout_seconds": 600.0,
        "num_sessions": 2, "num_turns": None, "duration_seconds": 9.0, "turn_spacing_seconds": 0.5,
        "num_warm_up_turns": 5,
    }  # fmt: skip


def test_every_turn_is_in_it_and_the_figures_of_all() -> None:
    turns = run(3, noise=0.0)
    turns[1] = replace(turns[1], error="Internal: no", kv_live_bytes=None, time_to_first_token_seconds=None)
    read = report(turns, "--warm-up-turns", "0").document()
    assert read["turns"][0] == {
        "session": 0, "index": 1, "started_seconds": 0.0, "wall_seconds": 0.95, "capacity": 68, "num_new_tokens": 30,
        "num_tokens_out": 8, "history_length": 38, "time_to_first_token_seconds": 0.25, "prefill_seconds": 0.23,
        "decode_seconds": 0.7, "kv_live_bytes": 38_000, "worker": "one", "worker_rss_bytes": RSS,
        "num_evicted_tokens": 0, "error": None,
    }  # fmt: skip
    assert (read["turns"][1]["error"], read["turns"][1]["kv_live_bytes"]) == ("Internal: no", None)
    times = ["turn_s", "time_to_first_token_s", "time_to_first_token_per_new_token_s"]
    work, sizes = ["prefill_s", "decode_s", "decode_per_token_s"], ["kv_live_bytes", "worker_rss_bytes"]
    counts = ["num_turns", "num_errors"]
    tokens = ["num_tokens_in", "num_tokens_out", "num_evicted_tokens"]
    assert list(read["agg"]) == [*counts, *tokens, *times, *work, "latency_drift_p50_s", *sizes]
    assert list(read["buckets_10min"][0]) == ["start_s", "end_s", *counts, *times, *sizes]
    assert all(set(read["agg"][name]) == DISTRIBUTION for name in [*times, *work])
    assert all(set(read["agg"][name]) == {"min", "mean", "max"} for name in sizes)
