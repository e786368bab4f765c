"""What of a report is to be looked at: its page and its picture."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kakeya.bench import html_page, units
from kakeya.bench.html_page import Badge, Cell, Column, Drawing, Section, Table, facts_table
from kakeya.bench.load import picture
from kakeya.bench.load.report import JSON_NAME

HTML_NAME = "load.html"
MAX_ERRORS = 20
_STATES = {"complete": "passed", "running": "undecided", "interrupted": "undecided", "broken_off": "failed"}
_LEVEL_COLUMNS = (
    "sessions", "got in", "turns", "failed", "in time", "goodput, turns/s", "answered, turns/s", "tokens out/s",
    "TTFT p50, ms", "TTFT p95, ms", "TPOT p50, ms", "TPOT p95, ms", "KV of the sessions", "KV of their workers",
)  # fmt: skip
_Document = Mapping[str, Any]


def files(document: _Document) -> dict[str, bytes]:
    """The page and the picture by their names; the same document gives the same bytes.

    Args:
        document: what `Report.document` returns, or what a load.json holds.
    """
    drawing = _drawing(document)
    model = document["model"]
    title = f"kakeya bench load: {model['name']}" if model else "kakeya bench load"
    page = html_page.page(title, _badges(document), list(_sections(document, drawing)), json_name=JSON_NAME)
    return {HTML_NAME: page, f"{drawing.picture.name}.png": drawing.picture.png}


def _badges(document: _Document) -> list[Badge]:
    outcomes = {gate["outcome"] for gate in document["gates"].values()}
    worst = next(outcome for outcome in ("failed", "undecided", "passed") if outcome in outcomes)
    state = document["state"]
    return [Badge(_STATES[state], f"sweep {state.replace('_', ' ')}"), Badge(worst, f"gates {worst}")]


def _drawing(document: _Document) -> Drawing:
    return Drawing(
        picture.draw(document),
        "Goodput, time to first token and time per output token against the number of sessions",
        "Where the two lines of the uppermost panel part, answers still come, but too late. Where goodput stops "
        "rising, each session gets less.",
    )


def _sections(document: _Document, drawing: Drawing) -> Iterator[Section]:
    yield Section("Levels", [_about(document), _largest(document), _levels(document["levels"]), *_troubles(document)])
    yield Section("Goodput and waiting times", [drawing])
    yield Section("Gates", [_gates(document["gates"])])
    yield from _errors(document["levels"])
    model = document["model"]
    if model:
        yield Section("Model", [facts_table({name: value for name, value in model.items() if name != "worker"})])
    if model and model["worker"]:
        yield Section("Worker of the first session", [facts_table(model["worker"])])
    yield Section("Options", [facts_table(document["options"])])
    yield Section("Environment", [facts_table(document["environment"])])


def _about(document: _Document) -> str:
    options = document["options"]
    limits = options["limits"]
    return (
        f"At each level so many users hold a session each, send a message, read the answer, and think for "
        f"{options['think_time_seconds']:g} s on average before the next. Turns count that began within "
        f"{options['duration_seconds']:g} s after a warm-up of {options['warm_up_seconds']:g} s. One is in time where "
        f"its first token came within {limits['time_to_first_token_seconds']:g} s (TTFT) and those after it took "
        f"{limits['time_per_output_token_seconds']:g} s each or less, on average (TPOT); goodput is the turns in time "
        f"in a second. Started {document['started_at']}, written {document['written_at']}."
    )


def _largest(document: _Document) -> str:
    number, goal = document["largest_num_sessions_within_limits"], 100 * document["options"]["goal_share"]
    if number is None:
        return f"At no level {goal:g} % of the turns were in time."
    return f"The largest level at which {goal:g} % of the turns were in time: {number:,}."


def _levels(levels: Sequence[_Document]) -> Table:
    return Table([Column(name, is_number=True) for name in _LEVEL_COLUMNS], [_level(level) for level in levels])


def _level(level: _Document) -> list[Cell]:
    share, kv = level["share_within_limits"], level["kv"] or {}
    first, each = level["time_to_first_token_s"], level["time_per_output_token_s"]
    return [
        level["num_sessions"],
        level["num_opened"],
        level["num_turns"],
        level["num_errors"],
        None if share is None else f"{share:.1%}",
        *(_number(level[name]) for name in ("goodput_turns_per_s", "turns_per_s", "tokens_out_per_s")),
        *(_number(figures and figures[name] * 1e3) for figures in (first, each) for name in ("p50", "p95")),
        *(_size(kv.get(name)) for name in ("sessions_bytes", "workers_bytes")),
    ]


def _number(value: float | None) -> Cell:
    return None if value is None else f"{value:,.2f}"


def _size(size: int | None) -> Cell:
    return None if size is None else units.of_bytes(size).text(size)


def _troubles(document: _Document) -> Iterator[str]:
    """What else is to be known of the figures."""
    for level in document["levels"]:
        name = f"Level of {level['num_sessions']:,}"
        if level["refusal"]:
            yield f"{name}: {level['num_opened']:,} got in; the next: {level['refusal']}."
        if level["state"] == "broken_off":
            yield f"{name}: broken off; its figures are of the turns that had come to their ends."
        if level["kv"] and level["kv"]["why_not"]:
            yield f"{name}: KV is not known: {level['kv']['why_not']}."
        if level["why_not_closed"]:
            yield f"{name}: a session was not closed, and expires by itself: {level['why_not_closed']}."
    if document["why_broken_off"]:
        yield f"The sweep was broken off: {document['why_broken_off']}."


def _gates(gates: _Document) -> Table:
    return Table(
        [Column("gate"), Column("outcome"), Column("found"), Column("formula")],
        [[name, Badge(gate["outcome"]), gate["reason"], gate["formula"]] for name, gate in gates.items()],
    )


def _errors(levels: Sequence[_Document]) -> Iterator[Section]:
    failed = [(level["num_sessions"], turn) for level in levels for turn in level["turns"] if turn["error"] is not None]
    if not failed:
        return
    table = Table(
        [*(Column(name, is_number=True) for name in ("level", "session", "turn", "after, s")), Column("error")],
        [
            [number, turn["session"], turn["index"], f"{turn['started_seconds']:,.1f}", turn["error"]]
            for number, turn in failed[:MAX_ERRORS]
        ],
    )
    yield Section("Turns that failed", [f"{min(MAX_ERRORS, len(failed))} of {len(failed):,}.", table])
