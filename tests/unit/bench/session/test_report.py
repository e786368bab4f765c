"""The JSON document of `kakeya bench session`."""

import json
import warnings
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kakeya_bench.conversation.turn import Turn
from kakeya_bench.session import page
from kakeya_bench.session.report import Report, aggregate, buckets
from kakeya_bench.session.settings import SessionSettings
from kakeya_bench.statistics.distribution import distribution
from tests.unit.bench.report import golden
from tests.unit.bench.session.runs import FACTS, RSS, but, changed, failed, report, run

DISTRIBUTION = {"min", "mean", "max", "p50", "p90", "p95", "p99"}


def test_all_that_a_report_says() -> None:
    settings = SessionSettings.parse(["--output", "/nowhere"])
    read = json.loads(json.dumps(Report(settings=settings, facts=FACTS, turns=run(200)).document(), allow_nan=False))
    assert list(read) == [
        "schema",
        "state",
        "started_at",
        "written_at",
        "options",
        "environment",
        "model",
        "gates",
        "agg",
        "buckets_10min",
        "turns",
    ]
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
        "model": None,
        "tokenizer": None,
        "num_random_tokens": None,
        "prompts": "a/file",
        "uses_template": True,
        "max_tokens": 64,
        "ignores_eos": False,
        "sink": None,
        "window": 64,
        "seed": 0,
        "timeout_seconds": 600.0,
        "num_sessions": 2,
        "num_turns": None,
        "duration_seconds": 9.0,
        "turn_spacing_seconds": 0.5,
        "num_warm_up_turns": 5,
    }


def test_every_turn_is_in_it_and_the_figures_of_all() -> None:
    turns = run(3, noise=0.0)
    turns[1] = replace(turns[1], error="Internal: no", kv_live_bytes=None, time_to_first_token_seconds=None)
    read = report(turns, "--warm-up-turns", "0").document()
    assert read["turns"][0] == {
        "session": 0,
        "index": 1,
        "started_seconds": 0.0,
        "wall_seconds": 0.95,
        "capacity": 68,
        "num_new_tokens": 30,
        "num_tokens_out": 8,
        "history_length": 38,
        "time_to_first_token_seconds": 0.25,
        "prefill_seconds": 0.23,
        "decode_seconds": 0.7,
        "kv_live_bytes": 38_000,
        "worker": "one",
        "worker_rss_bytes": RSS,
        "num_evicted_tokens": 0,
        "error": None,
    }
    assert (read["turns"][1]["error"], read["turns"][1]["kv_live_bytes"]) == ("Internal: no", None)
    times = ["turn_s", "time_to_first_token_s", "time_to_first_token_per_new_token_s"]
    work, sizes = ["prefill_s", "decode_s", "decode_per_token_s"], ["kv_live_bytes", "worker_rss_bytes"]
    counts = ["num_turns", "num_errors"]
    tokens = ["num_tokens_in", "num_tokens_out", "num_evicted_tokens"]
    assert list(read["agg"]) == [*counts, *tokens, *times, *work, "latency_drift_p50_s", *sizes]
    assert list(read["buckets_10min"][0]) == ["start_s", "end_s", *counts, *times, *sizes]
    assert all(set(read["agg"][name]) == DISTRIBUTION for name in [*times, *work])
    assert all(set(read["agg"][name]) == {"min", "mean", "max"} for name in sizes)


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


GOLDEN = Path(__file__).parent / "golden" / "report.html"
PICTURES = ["latency", "memory", "prefill"]
UNKNOWN = replace(FACTS, name="漢 $x$", kv_bytes_per_token=None, why_not="no config.json", worker={})


def document(turns: list[Turn], *flags: str, **known: Any) -> dict[str, Any]:
    """As it stands in a file that was written then."""
    found = report(turns, *flags, **known).document() | {"written_at": "2026-01-01T00:10:00+00:00"}
    read: dict[str, Any] = json.loads(json.dumps(found, allow_nan=False))
    return read


def test_the_page_is_as_it_is_meant_to_be() -> None:
    """Two sessions, of which one failed once. WRITE_GOLDEN=1 writes the page anew."""
    turns = [*run(130), *but(run(130, session=1, worker="<two>"), 60, error="WorkerLost: <gone>")]
    made = page.files(document(turns, "--sessions", "2", "--exact", state="complete", next_tokens=([1, 2], [1, 3])))
    assert sorted(made) == [*(f"{name}.png" for name in PICTURES), "report.html"]
    assert not golden.differs(made["report.html"], GOLDEN, *(f"{name}.svg" for name in PICTURES))


@pytest.mark.parametrize(
    "turns",
    [
        [],
        run(1, wall_seconds=0.0, time_to_first_token_seconds=0.0),
        run(5_000),
        [
            *but(run(130, capacity=240), 20, wall_seconds=60.0, num_new_tokens=0),
            *(turn for number in range(1, 15) for turn in run(9, session=number, worker=f"漢-{number}")),
            *run(3, session=15, time_to_first_token_seconds=None, worker_rss_bytes=None),
            *(failed(index, session=16) for index in range(1, 11)),
        ],
    ],
    ids=["no turn", "one turn", "5,000 turns", "all kinds of turns"],
)
def test_every_run_is_drawn(turns: list[Turn]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        files = page.files(document(turns, facts=FACTS if len(turns) > 1 else UNKNOWN))
    assert all(files[f"{name}.png"].startswith(b"\x89PNG") for name in PICTURES)
    assert files["report.html"].count(b'src="data:image/svg+xml;base64,') == 3
    assert len(files["report.html"]) < 1_000_000, "also of a run of days"


@pytest.mark.parametrize(
    ("drift", "says"),
    [
        (0.0021, "took 2.1 ms more than that of the first tenth."),
        (-1.5, "took 1,500.0 ms less than that of the first tenth."),
        (None, "without the warm-up: the first 5 turns of each session."),
    ],
)
def test_the_summary_says_whether_turns_became_slower(drift: float | None, says: str) -> None:
    made = document(run(2))
    title, sections = page.summary(made | {"agg": made["agg"] | {"latency_drift_p50_s": drift}})
    assert title == "kakeya bench session: counter"
    about = [block for section in sections for block in section.blocks if isinstance(block, str)]
    assert about[0].startswith(
        "counter with 4 sinks and a window of 64 tokens. 2 turns in 1 session, 0 of them failed."
    )
    assert about[1].endswith(says)
