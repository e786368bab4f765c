"""The demo's conversation over HTTP in writing."""

from rich.text import Text

from kakeya_local.demo.http_report import HttpReport, HttpTurn
from kakeya_local.demo.transcript import said_cell
from kakeya_local.terminal import print_table

_HEADER = ("turn", "prompt", "history", "retained", "evicted", "first token ms", "you -> the model")


def print_http(report: HttpReport) -> None:
    """Each turn beside what `usage` says of it."""
    first, past = report.num_past_turns + 1, report.num_past_turns
    brought = f"the {past} turns before are brought along" if past else "from its beginning"
    print(f"\nconversation 1 from turn {first} on once more, over HTTP; {brought}, and each request sends all of it")
    print_table(map(_row, report.turns), header=_HEADER)


def http_summary(report: HttpReport) -> str:
    """How the answers compare, and whether the figures add up."""
    num_same, num_turns = sum(turn.is_same for turn in report.turns), len(report.turns)
    num_expected, num_missed = len(report.expectations()), len(report.missed())
    answers = f"{num_expected - num_missed} of {num_expected} as expected, " if num_expected else ""
    problems = report.wrong_figures()
    figures = problems[0] if problems else f"what exceeds {report.lane_tokens} tokens is evicted; no session is left"
    return f"over HTTP: {answers}{num_same} of {num_turns} answers word for word those over gRPC; {figures}"


def _row(turn: HttpTurn) -> tuple[str | Text, ...]:
    said = turn.completion
    return (
        str(turn.held.turn),
        str(said.prompt_tokens),
        str(said.history),
        str(said.retained),
        str(said.evicted),
        f"{said.first_token_seconds * 1e3:.0f}",
        said_cell(turn.turn),
    )
