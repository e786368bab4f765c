"""What a report says in words and tables."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from kakeya.bench import units
from kakeya.bench.html_page import Badge, Cell, Column, Section, Table, facts_table
from kakeya.bench.units import Unit

MAX_ERRORS = 20
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
_STATES = {"complete": "passed", "running": "undecided", "interrupted": "undecided", "given_up": "failed"}
_WORST_FIRST = ("failed", "undecided", "passed", "skipped")
_Document = Mapping[str, Any]


def badges(document: _Document) -> list[Badge]:
    """What the run came to, and what its gates say together."""
    state = document["state"]
    outcomes = {gate["outcome"] for gate in document["gates"].values()}
    worst = next(outcome for outcome in _WORST_FIRST if outcome in outcomes)
    return [Badge(_STATES[state], f"run {state.replace('_', ' ')}"), Badge(worst, f"gates {worst}")]


def findings(document: _Document) -> list[Section]:
    """What was found: the run in a sentence, what the gates say, which turns failed, the figures."""
    return [
        Section("Gates", [_sentence(document), _gates(document["gates"])]),
        *_errors(document["turns"]),
        Section("Figures", [_about_figures(document), _durations(document["agg"]), _sizes(document["agg"])]),
    ]


def rest(document: _Document) -> list[Section]:
    """What the figures are of: stretches of time, the model, what was asked, where it ran."""
    model = document["model"]
    return [
        Section("Over time", [_buckets(document["buckets_10min"])]),
        Section("Model", [facts_table({name: value for name, value in model.items() if name != "worker"})]),
        Section(
            "Worker",
            [facts_table(model["worker"]) if model["worker"] else "The router tells operators only."],
        ),
        Section("Options", [facts_table(document["options"])]),
        Section("Environment", [facts_table(document["environment"])]),
    ]


def _sentence(document: _Document) -> str:
    model, agg = document["model"], document["agg"]
    return (
        f"{model['name']} with {model['sink']:,} sinks and a window of {model['window']:,} tokens: "
        f"{_counted(agg['num_turns'], 'turn')} in {_counted(document['options']['num_sessions'], 'session')}, "
        f"{agg['num_errors']:,} of them failed; "
        f"{agg['num_tokens_in']:,} tokens in, {agg['num_tokens_out']:,} out, {agg['num_evicted_tokens']:,} evicted. "
        f"Started {document['started_at']}, written {document['written_at']}."
    )


def _gates(gates: _Document) -> Table:
    return Table(
        [Column("gate"), Column("outcome"), Column("found"), Column("formula")],
        [[name, Badge(gate["outcome"]), gate["reason"], gate["formula"]] for name, gate in gates.items()],
    )


def _errors(turns: Sequence[_Document]) -> Iterator[Section]:
    failed = [turn for turn in turns if turn["error"] is not None]
    if not failed:
        return
    table = Table(
        [
            Column("session", is_number=True),
            Column("turn", is_number=True),
            Column("at", is_number=True),
            Column("error"),
        ],
        [
            [turn["session"], turn["index"], _clock(turn["started_seconds"]), turn["error"]]
            for turn in failed[:MAX_ERRORS]
        ],
    )
    shown = (
        f"The first {MAX_ERRORS} of {len(failed):,}." if len(failed) > MAX_ERRORS else f"{len(failed):,}, all of them."
    )
    yield Section("Turns that failed", [shown, table])


def _about_figures(document: _Document) -> str:
    drift = document["agg"]["latency_drift_p50_s"]
    warm_up = _counted(document["options"]["num_warm_up_turns"], "turn")
    says = f"Times are of turns that did not fail, without the first {warm_up} of each session, the warm-up."
    if drift is None:
        return says
    compared = f"{abs(drift) * 1e3:,.1f} ms {'less' if drift < 0 else 'more'}"
    return f"{says} The median turn of the last tenth took {compared} than that of the first tenth."


def _durations(agg: _Document) -> Table:
    columns = [Column("duration"), *(Column(name, is_number=True) for name in _SHARES), Column("unit")]
    return Table(columns, [_duration(name, agg[key]) for key, name in _DURATIONS.items()])


def _duration(name: str, figures: _Document | None) -> list[Cell]:
    if figures is None:
        return [name, *(None for _ in _SHARES), None]
    unit = units.of_seconds(figures["p50"])
    return [name, *(unit.number(figures[share]) for share in _SHARES), unit.name]


def _sizes(agg: _Document) -> Table:
    columns = [Column("memory"), *(Column(f"{name}, bytes", is_number=True) for name in ("min", "mean", "max"))]
    columns.append(Column("max", is_number=True))
    return Table(columns, [[name, *_size(agg[key])] for key, name in _SIZES.items()])


def _size(figures: _Document | None) -> list[Cell]:
    if figures is None:
        return [None] * 4
    most = figures["max"]
    return [figures["min"], round(figures["mean"]), most, units.of_bytes(most).text(most)]


def _buckets(buckets: Sequence[_Document]) -> Table | str:
    if not buckets:
        return "No turn was played."
    turn, first, token = (_unit(buckets, name) for name in list(_DURATIONS)[:3])
    columns = [
        "from", "to", "turns", "failed", f"turn p50, {turn.name}", f"turn p95, {turn.name}",
        f"first token p50, {first.name}", f"first token p95, {first.name}", f"per new token p50, {token.name}",
        "KV max, bytes", "RSS max, MiB",
    ]  # fmt: skip
    return Table(
        [Column(name, is_number=True) for name in columns], [_bucket(each, turn, first, token) for each in buckets]
    )


def _bucket(bucket: _Document, turn: Unit, first: Unit, token: Unit) -> list[Cell]:
    kv, rss = bucket["kv_live_bytes"], bucket["worker_rss_bytes"]
    return [
        _clock(bucket["start_s"]), _clock(bucket["end_s"]), bucket["num_turns"], bucket["num_errors"],
        _share(bucket["turn_s"], "p50", turn), _share(bucket["turn_s"], "p95", turn),
        _share(bucket["time_to_first_token_s"], "p50", first), _share(bucket["time_to_first_token_s"], "p95", first),
        _share(bucket["time_to_first_token_per_new_token_s"], "p50", token),
        kv and kv["max"], rss and f"{rss['max'] / 2**20:,.1f}",
    ]  # fmt: skip


def _unit(buckets: Iterable[_Document], name: str) -> Unit:
    return units.of_seconds(max((bucket[name]["p50"] for bucket in buckets if bucket[name]), default=0.0))


def _share(figures: _Document | None, share: str, unit: Unit) -> Cell:
    return unit.number(figures[share]) if figures else None


def _clock(seconds: float) -> str:
    """0:02:03.4"""
    whole, tenths = divmod(round(seconds * 10), 10)
    return f"{timedelta(seconds=whole)}.{tenths}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
