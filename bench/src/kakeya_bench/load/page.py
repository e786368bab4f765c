"""What a report says and shows: a summary for the terminal, a page with a picture for everything."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kakeya_bench.load.run import JSON_NAME
from kakeya_bench.report import blocks, page, pictures
from kakeya_bench.report.blocks import Figure, Section, Table
from kakeya_bench.report.panels import COLORS, Level, Line, Panel, Point, Ticks
from kakeya_bench.report.pictures import Picture
from kakeya_bench.report.quantities import Bytes, Seconds, Share, counted

_DISTRIBUTIONS = {"TTFT": "time_to_first_token_s", "TPOT": "time_per_output_token_s"}
_Document = Mapping[str, Any]


def summary(document: _Document) -> tuple[str, list[Section]]:
    """What is printed at the end of a sweep."""
    return _title(document), _findings(document)


def files(document: _Document) -> dict[str, bytes]:
    """The page and the picture of what a load.json holds, by their names; the same document gives the same bytes."""
    badges = [blocks.state("sweep", document["state"]), blocks.worst(document["gates"])]
    figure = Figure(
        picture(document),
        "Goodput, time to first token and time per output token against the number of sessions",
        "Where the two lines of the uppermost panel part, answers still come, but too late. Where goodput stops "
        "rising, each session gets less.",
    )
    sections = [
        *_findings(document),
        Section("Goodput and waiting times", [figure]),
        *blocks.circumstances(document),
    ]
    return page.files(_title(document), badges, sections, json_name=JSON_NAME)


def picture(document: _Document) -> Picture:
    """Goodput and waiting times against the number of sessions: one place for each level."""
    levels, limits = document["levels"], document["options"]["limits"]
    rates = [
        Line("goodput: within both limits", _points(levels, "goodput_turns_per_s")),
        Line("all that were answered", _points(levels, "turns_per_s"), style="--"),
    ]
    panels = [
        Panel("turns", float, rates, empty="no turn counts", unit="1/s"),
        _waiting("time to first token", levels, "time_to_first_token_s", limits["time_to_first_token_seconds"]),
        _waiting("time per output token", levels, "time_per_output_token_s", limits["time_per_output_token_seconds"]),
    ]
    ticks = Ticks([level["num_sessions"] for level in levels], [_tick(level) for level in levels])
    title = f"{_title(document)}, answers in time with so many sessions at once"
    return pictures.draw("load", title, panels, x="sessions at once", ticks=ticks)


def _waiting(name: str, levels: Sequence[_Document], key: str, limit: float) -> Panel:
    lines = [
        Line(share, [(level["num_sessions"], level[key][share]) for level in levels if level[key]], color, style)
        for share, color, style in (("p50", COLORS[0], "-"), ("p95", COLORS[1], "--"))
    ]
    return Panel(name, Seconds, lines, levels=[Level(f"limit: {limit:g} s", limit, ":")], empty="no turn counts")


def _points(levels: Sequence[_Document], name: str) -> list[Point]:
    return [(level["num_sessions"], level[name]) for level in levels if level[name] is not None]


def _tick(level: _Document) -> str:
    asked, inside = level["num_sessions"], level["num_opened"]
    return f"{asked:,}" if asked == inside else f"{asked:,}\n({inside:,} got in)"


def _title(document: _Document) -> str:
    model = document["model"]
    return f"kakeya bench load: {model['name']}" if model else "kakeya bench load"


def _findings(document: _Document) -> list[Section]:
    levels = document["levels"]
    turns = [{"level": level["num_sessions"], **turn} for level in levels for turn in level["turns"]]
    return [
        Section("Levels", [_about(document), _levels(levels), *_troubles(document), _largest(document)]),
        Section("Gates", [blocks.gates(document["gates"])]),
        *blocks.failures(turns, ("level", "session", "index", "started_seconds")),
    ]


def _about(document: _Document) -> str:
    options, model = document["options"], document["model"]
    limits = options["limits"]
    lane = f"With {model['sink']:,} sinks and a window of {model['window']:,} tokens. " if model else ""
    return (
        f"{lane}At each level so many users hold a session each, send a message, read the answer, and think for "
        f"{options['think_time_seconds']:g} s on average before the next. Turns count that began within "
        f"{options['duration_seconds']:g} s after a warm-up of {options['warm_up_seconds']:g} s. One is in time where "
        f"its first token came within {limits['time_to_first_token_seconds']:g} s (TTFT) and those after it took "
        f"{limits['time_per_output_token_seconds']:g} s each or less, on average (TPOT). Goodput is the turns in time "
        f"in a second. Started {document['started_at']}, written {document['written_at']}: "
        f"{document['state'].replace('_', ' ')}."
    )


def _levels(levels: Sequence[_Document]) -> Table:
    waits = [f"{name} {share}" for name in _DISTRIBUTIONS for share in ("p50", "p95")]
    columns = [
        "sessions",
        "got in",
        "turns",
        "failed",
        "in time",
        "goodput/s",
        "answered/s",
        "tokens/s",
        *waits,
        "KV",
        "KV of workers",
    ]
    rows = []
    for level in levels:
        share, kv = level["share_within_limits"], level["kv"] or {}
        times = [level[key] and level[key][name] for key in _DISTRIBUTIONS.values() for name in ("p50", "p95")]
        rows.append(
            [
                *(level[name] for name in ("num_sessions", "num_opened", "num_turns", "num_errors")),
                None if share is None else Share(share),
                *(level[name] for name in ("goodput_turns_per_s", "turns_per_s", "tokens_out_per_s")),
                *(None if time is None else Seconds(time) for time in times),
                *(
                    None if (size := kv.get(name)) is None else Bytes(size)
                    for name in ("sessions_bytes", "workers_bytes")
                ),
            ]
        )
    return Table(columns, rows, on_page=("answered/s", "tokens/s"))


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


def _largest(document: _Document) -> str:
    number, goal = document["largest_num_sessions_within_limits"], 100 * document["options"]["goal_share"]
    if number is None:
        return f"At no level {goal:g} % of the turns were in time."
    return f"The largest level at which {goal:g} % of the turns were in time: {counted(number, 'session')}."
