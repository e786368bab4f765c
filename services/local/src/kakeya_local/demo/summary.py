"""What the demo says at its end, and whether it was as it must be."""

import sys
from collections.abc import Sequence
from itertools import pairwise

from rich.console import Console

from kakeya_local.demo.http_exchange import Completion
from kakeya_local.demo.http_report import goes_on
from kakeya_local.demo.report import NUM_COMPARED_TURNS, DemoReport, Pace
from kakeya_local.demo.transcript import http_summary
from kakeya_local.demo.turn import Turn

HISTORY_FACTOR = 5
"""By the default number of turns a history must have outgrown sinks and window this many times."""
MAX_MISSED = 1
"""Answers of kakeya-nano that may lack what the script expects; those over HTTP are counted apart."""


def summarize(report: DemoReport, console: Console) -> None:
    """Prints growth, what was forgotten, bytes against the formula, answers, pace at first and last, and HTTP."""
    growth = [_growth(report, last) for last in report.last_turns()]
    http = [http_summary(report.http)] if report.http else []
    tools = [_calls(held) for held in report.with_tools()]
    for line in ("", *growth, "", _answers(report), _formula(report), _pace(report), *tools, *http):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _growth(report: DemoReport, last: Turn) -> str:
    session = report.sessions[last.conversation - 1]
    return (
        f"conversation {last.conversation} ({session.title}): history grew to {last.history_length} tokens "
        f"in {last.turn} turns, kv_live_bytes {_plateau(report, last.conversation)}; "
        f"{_sight(last, session.pinned_tokens)}"
    )


def _sight(last: Turn, pinned_tokens: int) -> str:
    if not last.forgotten_tokens:
        return "nothing was forgotten"
    kept = f"the first {pinned_tokens}, which are pinned, never will be" if pinned_tokens else "none is pinned"
    return f"{last.forgotten_tokens} tokens are forgotten, {kept}"


def _plateau(report: DemoReport, conversation: int) -> str:
    turns = [turn for turn in report.turns if turn.conversation == conversation]
    level = turns[-1].kv_live_bytes
    start = next(turn.turn for turn in reversed(turns) if turn.turn == 1 or turns[turn.turn - 2].kv_live_bytes != level)
    return f"stayed at {level:,} from turn {start} on"


def _calls(held: Sequence[tuple[Turn, Completion]]) -> str:
    """Of a conversation with tools: what was called, and what its turns appended."""
    said = [completion for _, completion in held]
    num_calls = sum(len(each.calls) for each in said)
    told = f"conversation {held[0][0].conversation} over HTTP: its tool was called {num_calls} times"
    if not said[0].session_id:
        return told
    num_live = sum(goes_on(before, after) for before, after in pairwise(said))
    num_appended, num_sent = sum(each.appended for each in said), sum(each.prompt_tokens for each in said)
    return (
        f"{told}, and {num_live} of {len(said) - 1} further turns went on in its session; of {num_sent:,} tokens that "
        f"were sent {num_appended:,} were new to it and prefilled"
    )


def _answers(report: DemoReport) -> str:
    num_expected, missed = len(report.expectations()), report.missed()
    if not num_expected:
        return "answers: nothing was expected of them"
    said = f"answers: {num_expected - len(missed)} of {num_expected} as expected"
    if missed:
        places = (f"conversation {turn.conversation} turn {turn.turn} ({turn.user!r})" for turn in missed)
        return f"{said}, all but {', '.join(places)}"
    return f"{said}: what is in sight is recalled, what is pinned at any distance, and what was forgotten is not known"


def _formula(report: DemoReport) -> str:
    num_readings, num_wrong = len(report.readings), len(report.wrong_bytes())
    outcome = f"wrong in {num_wrong} of {num_readings}" if num_wrong else f"exact in all {num_readings}"
    capacity = report.sink + report.window
    return (
        f"kv_live_bytes = min(history, {report.sink} + {report.window}) x {report.kv_bytes_per_token:,} bytes a token "
        f"by config.json, at most {capacity * report.kv_bytes_per_token:,}: "
        f"{outcome} readings (append, generate and info of every turn, over HTTP info)"
    )


def _pace(report: DemoReport) -> str:
    first, last = report.first_and_last()
    return f"first {NUM_COMPARED_TURNS} turns: {_milliseconds(first)}; last {NUM_COMPARED_TURNS}: {_milliseconds(last)}"


def _milliseconds(pace: Pace) -> str:
    return f"{pace.prefill_seconds * 1e3:.2f} ms an appended token, {pace.decode_seconds * 1e3:.2f} ms a generated one"


def verdict(report: DemoReport, *, long_histories: bool) -> int:
    """Prints what is wrong to standard error; 1 where something is, else 0."""
    problems = report.wrong_bytes()
    if long_histories:
        problems += report.short_histories(HISTORY_FACTOR)
    problems += _too_many_missed(report.missed(), "") + report.wrong_figures()
    if report.http:
        problems += _too_many_missed(report.http.missed(), "over HTTP, ")
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
