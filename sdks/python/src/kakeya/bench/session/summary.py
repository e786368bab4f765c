"""What a run found, on standard output."""

from collections.abc import Mapping
from typing import Any

from kakeya.bench.session.report import Report

_FIGURES = {
    "turn": ("turn_s", 1e3, "ms"),
    "time to first token": ("time_to_first_token_s", 1e3, "ms"),
    "... per new token": ("time_to_first_token_per_new_token_s", 1e3, "ms"),
    "prefill": ("prefill_s", 1e3, "ms"),
    "decode per token": ("decode_per_token_s", 1e3, "ms"),
}


def print_summary(report: Report) -> None:
    """The figures, then what each gate says."""
    document = report.document()
    agg, model = document["agg"], document["model"]
    print(
        f"{model['name']}: sink {model['sink']}, window {model['window']}, "
        f"{agg['num_turns']:,} turns, {agg['num_tokens_in']:,} tokens in, {agg['num_tokens_out']:,} out, "
        f"{agg['num_evicted_tokens']:,} evicted ({report.state})"
    )
    for name, (key, factor, unit) in _FIGURES.items():
        if agg[key]:
            print(f"  {name:20} {_percentiles(agg[key], factor)} {unit}")
    for key in ("kv_live_bytes", "worker_rss_bytes"):
        if agg[key]:
            print(f"  {key:20} {agg[key]['min']:,} to {agg[key]['max']:,}, mean {agg[key]['mean']:,.0f}")
    if agg["latency_drift_p50_s"] is not None:
        print(f"  {'drift of the median':20} {agg['latency_drift_p50_s'] * 1e3:+.1f} ms, last tenth against first")
    for name, verdict in document["gates"].items():
        print(f"{verdict['outcome']:9}  {name}: {verdict['reason']}")


def _percentiles(figures: Mapping[str, Any], factor: float) -> str:
    return "  ".join(f"{name} {figures[name] * factor:9.2f}" for name in ("p50", "p95", "p99", "max"))
