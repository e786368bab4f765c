"""What a sweep found, on standard output."""

from collections.abc import Iterable, Mapping
from typing import Any

from kakeya.bench.load.report import Report

_HEADINGS = (
    "sessions", "turns", "errors", "goodput/s", "in time", "TTFT p50", "    p95", "TPOT p50", "    p95", "tokens/s",
    " KV MiB", "workers'",
)  # fmt: skip


def print_summary(report: Report) -> None:
    """What was asked, a line for each level, what each gate says, then where the rest is."""
    document = report.document()
    options, model = document["options"], document["model"]
    limits = options["limits"]
    if model:
        print(f"{model['name']}: sink {model['sink']}, window {model['window']} ({report.state})")
    print(
        f"time to first token (TTFT) up to {limits['time_to_first_token_seconds']:g} s, time per output token after it "
        f"(TPOT) up to {limits['time_per_output_token_seconds']:g} s; both in ms below"
    )
    print(_row(_HEADINGS))
    for level in document["levels"]:
        print(_row(_cells(level)))
    for level in document["levels"]:
        _print_troubles(level)
    if report.why_broken_off:
        print(f"broken off: {report.why_broken_off}")
    print(_largest(document["largest_num_sessions_within_limits"], options["goal_share"]))
    for name, verdict in document["gates"].items():
        print(f"{verdict['outcome']:9}  {name}: {verdict['reason']}")
    print(f"report: {report.options.output}")


def _row(cells: Iterable[str]) -> str:
    return "  ".join(f"{cell:>{len(heading)}}" for heading, cell in zip(_HEADINGS, cells, strict=True))


def _cells(level: Mapping[str, Any]) -> list[str]:
    asked, inside, share = level["num_sessions"], level["num_opened"], level["share_within_limits"]
    first, each, kv = level["time_to_first_token_s"], level["time_per_output_token_s"], level["kv"] or {}
    return [
        f"{asked}" if inside == asked else f"{inside} of {asked}",
        f"{level['num_turns']:,}",
        f"{level['num_errors']:,}",
        _number(level["goodput_turns_per_s"], 2),
        "-" if share is None else f"{share:.0%}",
        *(_milliseconds(figures, name) for figures in (first, each) for name in ("p50", "p95")),
        _number(level["tokens_out_per_s"], 1),
        *(_mebibytes(kv.get(name)) for name in ("sessions_bytes", "workers_bytes")),
    ]


def _print_troubles(level: Mapping[str, Any]) -> None:
    number = level["num_sessions"]
    if level["refusal"]:
        print(f"of {number} sessions {level['num_opened']} got in; the next: {level['refusal']}")
    if level["state"] == "broken_off":
        print(f"the level of {number} was broken off: its figures are of the turns that had come to their ends")
    if level["why_not_closed"]:
        print(f"of {number} sessions not all were closed, and will expire: {level['why_not_closed']}")


def _largest(num_sessions: int | None, goal_share: float) -> str:
    goal = f"{100 * goal_share:g} % of the turns met both limits"
    return f"at no level {goal}" if num_sessions is None else f"largest level at which {goal}: {num_sessions} sessions"


def _milliseconds(figures: Mapping[str, float] | None, share: str) -> str:
    return _number(figures[share] * 1e3 if figures else None, 1)


def _mebibytes(size: int | None) -> str:
    return _number(None if size is None else size / 2**20, 2)


def _number(value: float | None, decimals: int) -> str:
    return "-" if value is None else f"{value:,.{decimals}f}"
