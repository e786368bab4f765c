"""What a run found, on standard output."""

from collections.abc import Mapping, Sequence
from typing import Any

from kakeya.bench.compare.notes import notes
from kakeya.bench.compare.report import Report
from kakeya.cli.output import byte_count
from kakeya.cli.output.table import print_table

_NONE = "-"


def print_summary(report: Report) -> None:
    """A table of the players, then what is to be known about them, then the claims, then where the rest is."""
    document = report.document()
    model, options, players = document["model"], document["options"], document["players"]
    print(
        f"{model['name']}: sink {model['sink']}, window {model['window']}; {options['num_turns']:,} turns of "
        f"{options['num_new_tokens']:,} new tokens and {options['max_tokens']:,} of an answer ({report.state})"
    )
    marks = [str(mark) for mark in document["marks"]]
    print_table(_header(marks), [_row(player, marks) for player in players])
    for line in notes(document):
        print(line)
    for name, verdict in document["claims"].items():
        print(f"{verdict['outcome']:9}  {name} at least {verdict['figures']['at_least']:g} times: {verdict['reason']}")
    print(f"report: {report.options.output}")


def _header(marks: Sequence[str]) -> list[str]:
    return ["TTFT, MS", *(f"TURN {mark}" for mark in marks), "MEAN", "WORST", "CONVERSATION", "RSS BEFORE", "RSS END"]


def _row(player: Mapping[str, Any], marks: Sequence[str]) -> list[str]:
    ttft, rss = player["time_to_first_token_s"] or {}, player["rss_bytes"] or {}
    seconds = player["conversation_s"]
    return [
        player["name"],
        *(_milliseconds((player["marks"][mark] or {}).get("time_to_first_token_s")) for mark in marks),
        _milliseconds(ttft.get("mean")),
        _milliseconds(ttft.get("max")),
        _NONE if seconds is None else f"{seconds:,.1f} s",
        _memory(rss.get("start")),
        _memory(rss.get("end")),
    ]


def _milliseconds(seconds: float | None) -> str:
    return _NONE if seconds is None else f"{seconds * 1e3:,.1f}"


def _memory(num_bytes: int | None) -> str:
    return _NONE if num_bytes is None else byte_count.show(num_bytes)
