"""The report of `kakeya bench session`: the JSON document, its files, and the summary."""

import json
import platform
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kakeya.bench.facts import Facts
from kakeya.bench.report_file import NotWritable
from kakeya.bench.session import options, output, page, summary
from kakeya.bench.session.gates import FORMULAS, GATES
from kakeya.bench.session.report import Report
from kakeya.bench.turn import Turn
from tests.unit.sdk.bench import series

FACTS = Facts(
    model="counter", fingerprint="f" * 64, exact=True, sink=4, window=64, reserved_bytes=100_000, kv_dtype="float32",
    bytes_per_token=series.BYTES_PER_TOKEN, why_not="", worker={"worker_id": "one", "backend": "torch"},
)  # fmt: skip
GATE_NAMES = ["kv_bounded", "rss_bounded", "prefill_bounded", "errors", "exact"]
SHARES = {"p50", "p90", "p95", "p99"}


def report(tmp_path: Path, turns: list[Turn], *flags: str) -> Report:
    asked = options.parse(["--output", str(tmp_path), *flags], {"KAKEYA_API_KEY": "a-secret"})
    return Report(asked, FACTS, turns)


def document(report: Report) -> dict[str, Any]:
    """As somebody reads it."""
    read: dict[str, Any] = json.loads(json.dumps(report.document(), allow_nan=False))
    return read


def test_all_that_a_report_says(tmp_path: Path) -> None:
    read = document(report(tmp_path, series.run(200)))
    assert read["schema"] == "kakeya.bench.session/1"
    assert read["state"] == "running"
    assert datetime.fromisoformat(read["started_at"]) <= datetime.fromisoformat(read["written_at"])
    assert datetime.fromisoformat(read["written_at"]).utcoffset() is not None
    assert read["environment"]["python"] == platform.python_version()
    assert read["environment"]["versions"]["kakeya"]
    assert (read["model"]["name"], read["model"]["fingerprint"]) == ("counter", "f" * 64)
    assert read["model"]["kv_live_bytes_at_plateau"] == 68 * series.BYTES_PER_TOKEN
    assert read["model"]["worker"] == {"worker_id": "one", "backend": "torch"}
    assert "a-secret" not in json.dumps(read)


def test_what_was_asked_for(tmp_path: Path) -> None:
    flags = ["--duration-s", "9", "--turn-spacing-s", "0.5", "--sessions", "2", "--prompts", "a/file", "--window", "64"]
    assert document(report(tmp_path, [], *flags))["options"] == {
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
    assert document(report(tmp_path, []))["options"]["prompts"] is None


def test_every_turn_is_in_it(tmp_path: Path) -> None:
    turns = series.run(3)
    turns[1] = replace(turns[1], error="Internal: no", kv_live_bytes=None, time_to_first_token_seconds=None)
    first, second, _ = document(report(tmp_path, turns))["turns"]
    assert first == {
        "session": 0,
        "index": 1,
        "started_seconds": 0.0,
        "wall_seconds": turns[0].wall_seconds,
        "capacity": 68,
        "num_new_tokens": 30,
        "num_tokens_out": 8,
        "history_length": 38,
        "time_to_first_token_seconds": turns[0].time_to_first_token_seconds,
        "prefill_seconds": turns[0].prefill_seconds,
        "decode_seconds": 0.7,
        "kv_live_bytes": 38_000,
        "worker": "one",
        "worker_rss_bytes": series.RSS,
        "num_evicted_tokens": 0,
        "error": None,
    }
    assert (second["error"], second["kv_live_bytes"], second["time_to_first_token_seconds"]) == (
        "Internal: no", None, None,
    )  # fmt: skip


def test_the_turns_in_figures(tmp_path: Path) -> None:
    turns = series.run(200)
    turns[9] = replace(turns[9], wall_seconds=9.0)
    read = document(report(tmp_path, turns, "--warm-up-turns", "10"))
    agg = read["agg"]
    assert (agg["num_turns"], agg["num_errors"], agg["num_tokens_in"], agg["num_tokens_out"]) == (200, 0, 6_000, 1_600)
    for name in ("turn_s", "time_to_first_token_s", "time_to_first_token_per_new_token_s", "prefill_s", "decode_s",
                 "decode_per_token_s"):  # fmt: skip
        assert set(agg[name]) == SHARES | {"min", "mean", "max"}
        assert agg[name]["min"] <= agg[name]["p50"] <= agg[name]["p99"] <= agg[name]["max"]
    assert agg["turn_s"]["max"] == max(turn.wall_seconds for turn in turns[10:]), "none of the warm-up"
    assert agg["latency_drift_p50_s"] == pytest.approx(0, abs=0.02)
    assert (agg["kv_live_bytes"]["min"], agg["kv_live_bytes"]["max"]) == (38_000, 68_000)
    assert 38_000 < agg["kv_live_bytes"]["mean"] < 68_000
    buckets = read["buckets_10min"]
    assert len(buckets) == 10
    assert sum(bucket["num_turns"] for bucket in buckets) == 200


def test_what_each_gate_says(tmp_path: Path) -> None:
    gates = document(report(tmp_path, series.run(200)))["gates"]
    assert list(gates) == list(GATES) == GATE_NAMES
    assert {name: gate["formula"] for name, gate in gates.items()} == FORMULAS
    assert [gate["outcome"] for gate in gates.values()] == ["passed"] * 4 + ["skipped"]
    assert all(gate["reason"] for gate in gates.values())
    assert gates["kv_bounded"]["figures"]["kv_bytes_per_token"] == series.BYTES_PER_TOKEN


def test_what_the_gates_are_shown(tmp_path: Path) -> None:
    """All that the report knows, or the turns that it is asked about."""
    one = report(tmp_path, series.run(200), "--exact", "--skip-gate", "errors", "--warm-up-turns", "150")
    one.next_tokens = [1, 2], [1, 2]
    said = {verdict.gate: verdict.outcome.value for verdict in one.verdicts()}
    assert (said["exact"], said["errors"], said["rss_bounded"]) == ("passed", "skipped", "undecided")
    assert {verdict.gate: verdict.outcome.value for verdict in one.verdicts([])}["kv_bounded"] == "undecided"
    one.next_tokens, one.why_not_exact = None, "because"
    assert document(one)["gates"]["exact"]["reason"] == "because"
    one.facts = replace(FACTS, bytes_per_token=None, why_not="no config")
    assert document(one)["gates"]["kv_bounded"]["reason"] == "no config"


def test_the_files(tmp_path: Path) -> None:
    one = report(tmp_path, series.run(30))
    one.state = "complete"
    output.write(one)
    read = json.loads((tmp_path / "report.json").read_text())
    files = page.files(read)
    assert {file.name for file in tmp_path.iterdir()} == {"report.json", *files}
    for name, content in files.items():
        assert (tmp_path / name).read_bytes() == content
    assert read["state"] == "complete"
    assert len(read["turns"]) == 30


def test_the_document_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured is kept, whatever becomes of the pictures."""

    def breaks(read: dict[str, Any]) -> dict[str, bytes]:
        raise NotWritable

    monkeypatch.setattr(page, "files", breaks)
    with pytest.raises(NotWritable):
        output.write(report(tmp_path, series.run(2)))
    assert len(json.loads((tmp_path / "report.json").read_text())["turns"]) == 2


def test_the_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = report(tmp_path, series.run(200, noise=0.0))
    one.state = "complete"
    summary.print_summary(one)
    first, turn, to_first, per_token, prefill, decode, kv, rss, drift, *gates = capsys.readouterr().out.splitlines()
    assert first == (
        "counter: sink 4, window 64, 200 turns, 6,000 tokens in, 1,600 out, "
        f"{sum(turn.num_evicted_tokens for turn in one.turns):,} evicted (complete)"
    )
    assert " ".join(turn.split()) == "turn p50 950.00 p95 950.00 p99 950.00 max 950.00 ms"
    assert " ".join(to_first.split()) == "time to first token p50 250.00 p95 250.00 p99 250.00 max 250.00 ms"
    assert " ".join(per_token.split()) == "... per new token p50 8.33 p95 8.33 p99 8.33 max 8.33 ms"
    assert " ".join(prefill.split()) == "prefill p50 230.00 p95 230.00 p99 230.00 max 230.00 ms"
    assert " ".join(decode.split()) == "decode per token p50 87.50 p95 87.50 p99 87.50 max 87.50 ms"
    assert kv.startswith("  kv_live_bytes        38,000 to 68,000, mean 67,8")
    assert rss == "  worker_rss_bytes     314,572,800 to 314,572,800, mean 314,572,800"
    assert drift == "  drift of the median  +0.0 ms, last tenth against first"
    assert [line.split(":")[0].split() for line in gates] == [
        ["passed", "kv_bounded"], ["passed", "rss_bounded"], ["passed", "prefill_bounded"], ["passed", "errors"],
        ["skipped", "exact"],
    ]  # fmt: skip


def test_the_summary_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary.print_summary(report(tmp_path, []))
    first, *gates = capsys.readouterr().out.splitlines()
    assert first.endswith("0 turns, 0 tokens in, 0 out, 0 evicted (running)")
    assert len(gates) == 5, "figures that are not there are left out"
