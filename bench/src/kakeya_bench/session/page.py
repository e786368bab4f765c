"""What a report says and shows: a summary for the terminal, a page with pictures for everything."""

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from itertools import groupby
from typing import Any

from kakeya_bench.conversation.turn import Turn
from kakeya_bench.report import blocks, page, pictures
from kakeya_bench.report.blocks import Figure, Section, Table
from kakeya_bench.report.panels import COLORS, Cloud, Level, Line, Panel, Point, Stretch
from kakeya_bench.report.pictures import label
from kakeya_bench.report.quantities import Bytes, Seconds, counted
from kakeya_bench.session import gates
from kakeya_bench.session.run import JSON_NAME

_DURATIONS = {
    "turn_s": "turn",
    "time_to_first_token_s": "time to first token",
    "time_to_first_token_per_new_token_s": "time to first token per new token",
    "prefill_s": "prefill, the worker's time",
    "decode_s": "decode, the router's time",
    "decode_per_token_s": "decode per token",
}
_SIZES = {"kv_live_bytes": "KV of a session", "worker_rss_bytes": "resident memory of a worker"}
_SHARES = ("min", "mean", "p50", "p90", "p95", "p99", "max")
_EXTENT = ("min", "mean", "max")
_Document = Mapping[str, Any]


def summary(document: _Document) -> tuple[str, list[Section]]:
    """What is printed at the end of a run."""
    return _title(document), _findings(document)


def files(document: _Document) -> dict[str, bytes]:
    """The page and the pictures of what a report.json holds, by their names; the same document gives the same bytes."""
    turns = [Turn(**turn) for turn in document["turns"]]
    figures = [_latency(document, turns), _memory(document, turns), _prefill(document, turns)]
    badges = [blocks.state("run", document["state"]), blocks.worst(document["gates"])]
    over_time = Section("Over time", [_buckets(document["buckets_10min"])])
    sections = [
        *_findings(document),
        Section("Turn after turn", figures),
        over_time,
        *blocks.circumstances(document),
    ]
    return page.files(_title(document), badges, sections, json_name=JSON_NAME)


def _title(document: _Document) -> str:
    return f"kakeya bench session: {document['model']['name']}"


def _findings(document: _Document) -> list[Section]:
    agg = document["agg"]
    durations = [[name, *(Seconds(agg[key][of]) for of in _SHARES)] for key, name in _DURATIONS.items() if agg[key]]
    sizes = [[name, *(Bytes(agg[key][of]) for of in _EXTENT)] for key, name in _SIZES.items() if agg[key]]
    return [
        Section("Gates", [_sentence(document), blocks.gates(document["gates"])]),
        *blocks.failures(document["turns"], ("session", "index", "started_seconds")),
        Section(
            "Figures",
            [_about_figures(document), Table(["duration", *_SHARES], durations), Table(["memory", *_EXTENT], sizes)],
        ),
    ]


def _sentence(document: _Document) -> str:
    model, agg = document["model"], document["agg"]
    return (
        f"{model['name']} with {model['sink']:,} sinks and a window of {model['window']:,} tokens. "
        f"{counted(agg['num_turns'], 'turn')} in {counted(document['options']['num_sessions'], 'session')}, "
        f"{agg['num_errors']:,} of them failed. "
        f"{counted(agg['num_tokens_in'], 'token')} in, {agg['num_tokens_out']:,} out, "
        f"{agg['num_evicted_tokens']:,} evicted. "
        f"Started {document['started_at']}, written {document['written_at']}: {document['state'].replace('_', ' ')}."
    )


def _about_figures(document: _Document) -> str:
    drift, num_warm_up = document["agg"]["latency_drift_p50_s"], document["options"]["num_warm_up_turns"]
    says = (
        "Times are of turns that did not fail, without the warm-up: the first "
        f"{counted(num_warm_up, 'turn')} of each session."
    )
    if drift is None:
        return says
    compared = f"{abs(drift) * 1e3:,.1f} ms {'less' if drift < 0 else 'more'}"
    return f"{says} The median turn of the last tenth took {compared} than that of the first tenth."


def _buckets(buckets: Iterable[_Document]) -> Table:
    times = {
        f"{name} {share}": (key, share)
        for key, name in (("turn_s", "turn"), ("time_to_first_token_s", "first token"))
        for share in ("p50", "p95")
    }
    times["per new token p50"] = "time_to_first_token_per_new_token_s", "p50"
    sizes = {"KV max": "kv_live_bytes", "RSS max": "worker_rss_bytes"}
    rows = [
        [
            *(str(timedelta(seconds=round(bucket[end]))) for end in ("start_s", "end_s")),
            *(bucket[name] for name in ("num_turns", "num_errors")),
            *(Seconds(bucket[key][share]) if bucket[key] else None for key, share in times.values()),
            *(Bytes(bucket[key]["max"]) if bucket[key] else None for key in sizes.values()),
        ]
        for bucket in buckets
    ]
    return Table(["from", "to", "turns", "failed", *times, *sizes], rows)


def _latency(document: _Document, turns: list[Turn]) -> Figure:
    num_warm_up = document["options"]["num_warm_up_turns"]

    def panel(name: str, measure: Callable[[Turn], float | None]) -> Panel:
        return Panel(
            name,
            Seconds,
            [Cloud(f"session {number}", points) for number, points in _by_session(turns, measure).items()],
            stretches=[Stretch("warm-up", 0.5, num_warm_up + 0.5)] if num_warm_up else [],
            marks=[turn.index for turn in turns if turn.error is not None],
            empty="no turn succeeded",
            may_be_logarithmic=True,
        )

    panels = [
        panel("turn latency", lambda turn: turn.wall_seconds),
        panel("time to first token", lambda turn: turn.time_to_first_token_seconds),
    ]
    return Figure(
        pictures.draw("latency", f"{_name(document)}: what a turn takes", panels, x="turn of its session"),
        "Turn latency and time to first token of each turn, in the order of the turns",
        "Where the lines are flat, the last turn takes what the first one took. Crosses are turns that failed.",
    )


def _memory(document: _Document, turns: list[Turn]) -> Figure:
    judged = document["gates"]
    kv = _by_session(turns, lambda turn: turn.kv_live_bytes)
    rss = _points(turns, lambda turn: turn.worker, lambda turn: turn.worker_rss_bytes)
    weight = document["model"]["kv_bytes_per_token"]
    expected = {each: each * weight for each in _capacities(turns)} if weight else {}
    panels = [
        Panel(
            "kv_live_bytes",
            Bytes,
            [Line(f"session {number}", points) for number, points in kv.items()],
            levels=[
                Level(f"{size:,} bytes by\nconfig.json for\nS + W = {each:,} tokens", size)
                for each, size in expected.items()
            ],
            empty="no turn succeeded",
        ),
        Panel(
            "worker RSS",
            Bytes,
            [Line(worker, points) for worker, points in rss.items()],
            empty="the memory of the worker is not known: it takes an operator's key",
        ),
    ]
    if limits := judged["rss_bounded"]["figures"]:
        panels.append(_growth(limits, rss, document["options"]["num_warm_up_turns"]))
    return Figure(
        pictures.draw("memory", f"{_name(document)}: what is held", panels, x="turn of its session"),
        "KV bytes of each session and resident memory of each worker, in the order of the turns",
        "KV grows until sinks and window are full, to the byte that config.json demands, and stays there (kv_bounded: "
        f"{judged['kv_bounded']['outcome']}). The worker's process must not grow either (rss_bounded: "
        f"{judged['rss_bounded']['outcome']}).",
    )


def _growth(limits: _Document, rss: Mapping[str, list[Point]], num_warm_up_turns: int) -> Panel:
    """The change since the first tenth, which a panel from zero on would hide, and what the gate allows."""
    allowance = max(limit["allowance_bytes"] for limit in limits.values())
    return Panel(
        "RSS less the median\nof the first tenth",
        Bytes,
        [
            Line(worker, [(x, y - limits[worker]["head_bytes"]) for x, y in points if x > num_warm_up_turns])
            for worker, points in rss.items()
            if worker in limits
        ],
        levels=[
            Level("allowed for the\nmedian of the last tenth", allowance),
            Level("allowed for the\nmaximum", 2 * allowance, ":"),
        ],
        may_be_negative=True,
    )


def _prefill(document: _Document, turns: list[Turn]) -> Figure:
    """The gate's stretches are marked, where they are long enough for the gate to compare them."""
    gate = document["gates"]["prefill_bounded"]
    marked = [Stretch(f"S + W = {each:,} tokens", each, each) for each in _capacities(turns)]
    head_and_tail = gates.head_and_tail(turns, document["options"]["num_warm_up_turns"])
    if min(map(len, head_and_tail)) >= gates.FEWEST:
        for name, part, color in zip(("head", "tail"), head_and_tail, (COLORS[2], COLORS[1]), strict=True):
            histories = [turn.history_before for turn in part]
            marked.append(Stretch(f"{name}: {len(part):,} turns", min(histories), max(histories), color))
    points = [(float(turn.history_before), cost) for turn in turns if (cost := turn.first_token_cost_seconds)]
    panel = Panel(
        "time to first token\nper new token",
        Seconds,
        [Cloud("turns of all sessions", points)],
        stretches=marked,
        empty="no turn had a first token",
        may_be_logarithmic=True,
    )
    title, x = f"{_name(document)}: what a new token costs", "history before the turn (tokens)"
    return Figure(
        pictures.draw("prefill", title, [panel], x=x, row_inches=3.4),
        "Time to first token per new token of each turn against the length of the history before it",
        f"prefill_bounded: {gate['outcome']}. {gate['reason']}.",
    )


def _points(
    turns: list[Turn], key: Callable[[Turn], Any], measure: Callable[[Turn], float | None]
) -> dict[Any, list[Point]]:
    """Of turns that did not fail: the number of the turn and what is measured of it, by session or worker."""
    known = sorted((turn for turn in turns if turn.error is None), key=lambda turn: (key(turn), turn.index))
    return {
        name: [(float(turn.index), value) for turn in group if (value := measure(turn)) is not None]
        for name, group in groupby(known, key)
    }


def _by_session(turns: list[Turn], measure: Callable[[Turn], float | None]) -> dict[int, list[Point]]:
    return _points(turns, lambda turn: turn.session, measure)


def _capacities(turns: Iterable[Turn]) -> list[int]:
    """Of the sessions whose turns succeeded, in tokens."""
    return sorted({turn.capacity for turn in turns if turn.error is None})


def _name(document: _Document) -> str:
    return label(document["model"]["name"])
