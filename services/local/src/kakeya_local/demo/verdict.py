"""Whether a run of the demo was as it must be."""

import sys
from collections.abc import Sequence

from kakeya_local.demo.report import DemoReport
from kakeya_local.demo.turn import Turn

HISTORY_FACTOR = 5
"""By the default number of turns a history must have outgrown sinks and window this many times."""
MAX_MISSED = 1
"""Answers of kakeya-nano that may lack what the script expects; those over HTTP are counted apart."""


def verdict(report: DemoReport, *, long_histories: bool) -> int:
    """Prints what is wrong to standard error; 1 where something is, else 0."""
    problems = report.wrong_bytes()
    if long_histories:
        problems += report.short_histories(HISTORY_FACTOR)
    problems += _too_many_missed(report.missed(), "")
    if report.http:
        problems += report.http.wrong_figures() + _too_many_missed(report.http.missed(), "over HTTP, ")
    for problem in problems:
        print(f"kakeya demo: error: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _too_many_missed(missed: Sequence[Turn], place: str) -> list[str]:
    if len(missed) <= MAX_MISSED:
        return []
    return [
        f"{place}conversation {turn.conversation} turn {turn.turn}: {turn.user!r} is answered {turn.answer!r}, "
        f"{turn.fault}"
        for turn in missed
    ]
