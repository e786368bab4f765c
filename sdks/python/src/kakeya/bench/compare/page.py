"""What of a report is to be looked at: its page and its picture."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kakeya.bench import html_page, units
from kakeya.bench.compare import picture
from kakeya.bench.compare.notes import notes
from kakeya.bench.html_page import Badge, Cell, Column, Drawing, Section, Table, facts_table

HTML_NAME = "compare.html"
JSON_NAME = "compare.json"
_STATES = {"complete": "passed", "running": "undecided", "interrupted": "undecided", "given_up": "failed"}
_Document = Mapping[str, Any]


def files(document: _Document) -> dict[str, bytes]:
    """The page and the picture by their names; the same document gives the same bytes.

    Args:
        document: what `Report.document` returns, or what a compare.json holds.
    """
    drawing = _drawing(document)
    title = f"kakeya bench compare: {document['model']['name']}"
    page = html_page.page(title, _badges(document), list(_sections(document, drawing)), json_name=JSON_NAME)
    return {HTML_NAME: page, f"{drawing.picture.name}.png": drawing.picture.png}


def _badges(document: _Document) -> list[Badge]:
    state = document["state"]
    badges = [Badge(_STATES[state], f"run {state.replace('_', ' ')}")]
    outcomes = {claim["outcome"] for claim in document["claims"].values()}
    worst = next((outcome for outcome in ("failed", "undecided", "passed") if outcome in outcomes), None)
    return [*badges, Badge(worst, f"claims {worst}")] if worst else badges


def _drawing(document: _Document) -> Drawing:
    return Drawing(
        picture.draw(document),
        "Time to first token, latency of whole turns, resident memory and KV of each player against the turn",
        "Players of marks alone are dots. Memory is of the server's processes: the runtime's is that of the worker. KV "
        "is measured for the runtime by the verifier; for the others it is computed from config.json, in "
        f"{document['rival_kv']['dtype']}, for the prompt and the answer.",
    )


def _sections(document: _Document, drawing: Drawing) -> Iterator[Section]:
    model, options = document["model"], document["options"]
    sentence = (
        f"{model['name']}, one session with {model['sink']:,} sinks and a window of {model['window']:,} tokens, beside "
        f"servers that know no sessions: {options['num_turns']:,} turns of {options['num_new_tokens']:,} new tokens "
        f"and {options['max_tokens']:,} of an answer; one player at a time, in an order that rotates. Started "
        f"{document['started_at']}, written {document['written_at']}."
    )
    yield Section("Time to first token", [sentence, _latency(document), *notes(document)])
    if document["claims"]:
        yield Section("Claims", [_claims(document["claims"])])
    yield Section("Turn after turn", [drawing])
    yield Section("Memory", [_memory(document), *_about_kv(document)])
    yield from _errors(document["turns"])
    yield Section("Players", [_players(document["players"])])
    for name in ("model", "options", "environment"):
        yield Section(name.capitalize(), [facts_table(document[name])])


def _latency(document: _Document) -> Table:
    marks = [str(mark) for mark in document["marks"]]
    columns = [f"turn {mark}, ms" for mark in marks] + ["mean, ms", "worst, ms", "conversation, s"]
    return Table(
        [Column("player"), *(Column(name, is_number=True) for name in columns)],
        [_latency_row(player, marks) for player in document["players"]],
    )


def _latency_row(player: _Document, marks: Sequence[str]) -> list[Cell]:
    distribution = player["time_to_first_token_s"] or {}
    at_marks = [(player["marks"][mark] or {}).get("time_to_first_token_s") for mark in marks]
    seconds = player["conversation_s"]
    return [
        player["name"],
        *(_milliseconds(value) for value in (*at_marks, distribution.get("mean"), distribution.get("max"))),
        None if seconds is None else f"{seconds:,.1f}",
    ]


def _milliseconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds * 1e3:,.1f}"


def _claims(claims: _Document) -> Table:
    return Table(
        [Column("claim"), Column("outcome"), Column("found")],
        [[claim["formula"], Badge(claim["outcome"]), claim["reason"]] for claim in claims.values()],
    )


def _memory(document: _Document) -> Table:
    names = ("RSS before", "RSS at the end", "RSS, largest", "KV at the end", "KV, largest")
    return Table(
        [Column("player"), *(Column(name, is_number=True) for name in names), Column("KV is")],
        [_memory_row(player) for player in document["players"]],
    )


def _memory_row(player: _Document) -> list[Cell]:
    rss, live, computed = player["rss_bytes"] or {}, player["kv_live_bytes"], player["kv_computed_bytes"]
    kv = live or computed or {}
    sizes = [rss.get("start"), rss.get("end"), rss.get("max"), kv.get("end"), kv.get("max")]
    return [
        player["name"],
        *(None if size is None else units.of_bytes(size).text(size) for size in sizes),
        "measured" if live else "computed" if computed else None,
    ]


def _about_kv(document: _Document) -> list[str]:
    why_not = document["rival_kv"]["why_not"]
    return [f"What the KV of the others weighs is not known: {why_not}."] if why_not else []


def _errors(turns: Sequence[_Document]) -> Iterator[Section]:
    failed = [turn for turn in turns if turn["error"] is not None]
    if failed:
        columns = [Column("turn", is_number=True), Column("player"), Column("error")]
        yield Section(
            "Turns that failed",
            [Table(columns, [[turn["index"], turn["player"], turn["error"]] for turn in failed])],
        )


def _players(players: Sequence[_Document]) -> Table:
    names = ("context", "keep", "drop", "num_turns", "num_sent_tokens", "num_cached_tokens")
    counts = [Column(name.removeprefix("num_").replace("_", " "), is_number=True) for name in names]
    return Table(
        [Column("player"), Column("url"), Column("model"), *counts],
        [[player["name"], *(player.get(name) for name in ("url", "model", *names))] for player in players],
    )
