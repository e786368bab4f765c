"""The demo's conversations in writing, each turn beside its figures."""

from rich.text import Text

from kakeya_local.demo.http_exchange import Completion
from kakeya_local.demo.http_report import HttpReport, HttpTurn
from kakeya_local.demo.report import DemoReport, Opened
from kakeya_local.demo.turn import Turn
from kakeya_local.terminal import print_table

_HEADER = ("turn", "history", "seen", "prefill+decode ms", "kv_live_bytes", "you -> the model")
_HTTP_HEADER = ("turn", "prompt", "appended", "history", "retained", "evicted", "first token ms", "you -> the model")
_MAX_CHARACTERS = 200
_NUM_LAST_TURNS = 7


def print_transcripts(report: DemoReport) -> None:
    """The first conversation whole, of the others the last turns, those of which something was expected if any."""
    for session in report.sessions:
        turns = [turn for turn in report.turns if turn.conversation == session.conversation]
        print(f"\n{_title(session)}\nsystem prompt: {_one_line(session.system)}")
        if session.conversation > 1:
            turns = ([turn for turn in turns if turn.expected] or turns)[-_NUM_LAST_TURNS:]
        told = [_told_row(turn, turn.completion) for turn in turns if turn.completion]
        if told:
            print_table(told, header=_HTTP_HEADER)
        else:
            print_table(map(_row, turns), header=_HEADER)


def _title(session: Opened) -> str:
    kept = f"sink {session.sink}, window {session.window}"
    if session.pinned_tokens:
        pinned = "the tools' and the system prompt's" if session.tools else "the system prompt's"
        kept += f", {pinned} {session.pinned_tokens} tokens pinned"
    way = f", over HTTP with {', '.join(session.tools)}" if session.tools else ""
    return f"conversation {session.conversation}, {session.title}{way}: {kept}"


def _row(turn: Turn) -> tuple[str | Text, ...]:
    return (
        str(turn.turn),
        str(turn.history_length),
        str(turn.history_length - turn.forgotten_tokens),
        f"{(turn.prefill_seconds or 0) * 1e3:.0f}+{(turn.decode_seconds or 0) * 1e3:.0f}",
        f"{turn.kv_live_bytes:,}",
        said_cell(turn),
    )


def said_cell(turn: Turn) -> Text:
    """What was said in a turn and what it lacks, in one line."""
    cell = Text(f"{_one_line(turn.user)} -> {_one_line(turn.answer)}")
    return cell if turn.as_expected else cell.append(f" [{_missed(turn)}]", "bold red")


def _missed(turn: Turn) -> str:
    return "still in sight" if turn.still_in_sight else f"expected: {turn.expected}"


def _one_line(text: str) -> str:
    line = " / ".join(part.strip() for part in text.splitlines() if part.strip())
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]}..."


def print_http(report: HttpReport) -> None:
    """The conversation over HTTP, each turn beside what `usage` says of it."""
    first, past = report.num_past_turns + 1, report.num_past_turns
    brought = f"the {past} turns before are brought along" if past else "from its beginning"
    print(f"\nconversation 1 from turn {first} on once more, over HTTP; {brought}, and each request sends all of it")
    print_table(map(_http_row, report.turns), header=_HTTP_HEADER)


def http_summary(report: HttpReport) -> str:
    """How the answers over HTTP compare, and whether the figures add up."""
    num_same, num_turns = sum(turn.is_same for turn in report.turns), len(report.turns)
    num_expected, num_missed = len(report.expectations()), len(report.missed())
    answers = f"{num_expected - num_missed} of {num_expected} as expected, " if num_expected else ""
    problems = report.wrong_figures()
    figures = problems[0] if problems else _http_figures(report)
    return f"over HTTP: {answers}{num_same} of {num_turns} answers word for word those over gRPC; {figures}"


def _http_figures(report: HttpReport) -> str:
    evicted = f"what exceeds {report.lane_tokens} tokens is evicted"
    if not report.is_live:
        return f"{evicted}; no session is left"
    last = report.turns[-1]
    return (
        f"turn {last.held.turn} sent the whole conversation and appended its own {last.completion.appended} tokens, "
        f"the other {last.completion.reused} were there; {evicted}; no other session is left"
    )


def _http_row(turn: HttpTurn) -> tuple[str | Text, ...]:
    return _told_row(turn.turn, turn.completion)


def _told_row(turn: Turn, said: Completion) -> tuple[str | Text, ...]:
    return (
        str(turn.turn),
        str(said.prompt_tokens),
        str(said.appended or said.prompt_tokens),
        str(said.history),
        str(said.retained),
        str(said.evicted),
        f"{said.first_token_seconds * 1e3:.0f}",
        said_cell(turn),
    )
