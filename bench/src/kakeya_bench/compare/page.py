"""What a report says and shows: a summary for the terminal, a page with a picture for everything."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kakeya_bench.compare.run import JSON_NAME
from kakeya_bench.report import blocks, page, pictures
from kakeya_bench.report.blocks import Badge, Figure, Section, Table
from kakeya_bench.report.panels import COLORS, Line, Panel
from kakeya_bench.report.pictures import label
from kakeya_bench.report.quantities import Bytes, Seconds, counted, show

_Document = Mapping[str, Any]


def summary(document: _Document) -> tuple[str, list[Section]]:
    """What is printed at the end of a run."""
    return _title(document), _findings(document)


def files(document: _Document) -> dict[str, bytes]:
    """The page and the picture of what a compare.json holds, by their names; the same document gives the same bytes."""
    claims = document["claims"]
    badges = [blocks.state("run", document["state"])]
    if claims:
        badges.append(Badge(blocks.worst(claims).outcome, f"claims {blocks.worst(claims).outcome}"))
    turns = Section("Turn after turn", [_figure(document)])
    sections = [*_findings(document), turns, _players(document), *blocks.circumstances(document)]
    return page.files(_title(document), badges, sections, json_name=JSON_NAME)


def _title(document: _Document) -> str:
    return f"kakeya bench compare: {document['model']['name']}"


def _findings(document: _Document) -> list[Section]:
    players, claims, why_not = document["players"], document["claims"], document["rival_kv"]["why_not"]
    notes = [f"{player['name']}: {note}." for player in players for note in _notes(player)]
    memory = ["player", "RSS before", "RSS at the end", "RSS, largest", "KV at the end", "KV, largest", "KV is"]
    claims = {_claim(name, each["figures"]): each for name, each in claims.items()}
    about_kv = [f"What the KV of the others weighs is not known: {why_not}."] if why_not else []
    return [
        Section("Time to first token", [_sentence(document), _latency(document), _about_marks(document), *notes]),
        *([Section("Claims", [blocks.gates(claims)])] if claims else []),
        Section("Memory", [Table(memory, [_memory(player) for player in players]), *about_kv]),
        *blocks.failures(document["turns"], ("index", "player")),
    ]


def _claim(name: str, figures: _Document) -> str:
    return f"{name}, at least {figures['at_least']:g} times" if "at_least" in figures else name


def _sentence(document: _Document) -> str:
    model, options = document["model"], document["options"]
    return (
        f"{model['name']}, one session with {model['sink']:,} sinks and a window of {model['window']:,} tokens, beside "
        f"other servers: {options['num_turns']:,} turns of {options['num_new_tokens']:,} new tokens "
        f"and {options['max_tokens']:,} of an answer. One player at a time, in an order that rotates. "
        f"Started {document['started_at']}, written {document['written_at']}: {document['state'].replace('_', ' ')}."
    )


def _latency(document: _Document) -> Table:
    rows = []
    for player in document["players"]:
        ttft = player["time_to_first_token_s"] or {}
        at_marks = [(found or {}).get("time_to_first_token_s") for found in player["marks"].values()]
        seconds = [*at_marks, ttft.get("mean"), ttft.get("max"), player["conversation_s"]]
        rows.append([player["name"], *(None if value is None else Seconds(value) for value in seconds)])
    turns = [f"turn {mark}" for mark in document["marks"]]
    return Table(["TTFT", *turns, "mean", "worst", "conversation"], rows)


def _about_marks(document: _Document) -> str:
    return (
        f"Time to first token (TTFT) by the client's clock. At a mark: the median of up to "
        f"{document['turns_to_a_mark']} turns, of which the mark is the last; of players of marks alone, that turn's."
    )


def _notes(player: _Document) -> Iterator[str]:
    if player["num_errors"]:
        yield f"{counted(player['num_errors'], 'turn')} failed; the first was {player['first_error']}"
    if player["left_out_after_turn"] is not None:
        yield f"left out after turn {player['left_out_after_turn']}, since turn after turn failed"
    if not player["plays_every_turn"]:
        yield "plays the marks alone, with the runtime's history"
    if player["num_appended_tokens"] is not None:
        went_on = f"{player['num_continued_turns']:,} of {counted(player['num_turns'], 'turn')} went on in its session"
        appended = f"{player['num_appended_tokens']:,} tokens were appended for {player['num_new_tokens']:,} new ones"
        client = Seconds(player["client_s"]["p50"])
        what = "its new message behind the response before" if player["api"] == "responses" else "all messages"
        yield f"sends {what} each turn; {went_on}, and {appended}"
        yield f"its time to first token begins where the request is sent; its client made that in {show(client)} before"
    if player["num_dropping_turns"]:
        began = f"{counted(player['num_dropping_turns'], 'turn')} began with fewer of the oldest tokens"
        yield f"{began}, since its context holds {player['context']:,}"
    if player["num_unknown_answers"]:
        unknown = f"its answer's ids are not known in {counted(player['num_unknown_answers'], 'turn')}"
        yield f"{unknown}: others stand in its history, and a cache ends there"


def _memory(player: _Document) -> list[object]:
    rss, live, computed = player["rss_bytes"] or {}, player["kv_live_bytes"], player["kv_computed_bytes"]
    kv = live or computed or {}
    sizes = [rss.get("start"), rss.get("end"), rss.get("max"), kv.get("end"), kv.get("max")]
    known = [None if size is None else Bytes(size) for size in sizes]
    return [player["name"], *known, "measured" if live else "computed" if computed else None]


def _players(document: _Document) -> Section:
    names = ("url", "model", "context", "keep", "drop", "num_turns", "num_sent_tokens", "num_cached_tokens")
    rows = [[player["name"], *(player.get(name) for name in names)] for player in document["players"]]
    columns = ["player", *(name.removeprefix("num_").replace("_", " ") for name in names)]
    return Section("Players", [Table(columns, rows)])


def _figure(document: _Document) -> Figure:
    def panel(name: str, quantity: type, measure: Callable[[_Document], float | None], **how: Any) -> Panel:
        lines = [_line(document, number, measure) for number in range(len(document["players"]))]
        return Panel(name, quantity, lines, **how)

    timed = {"is_logarithmic": True, "empty": "no turn succeeded"}  # since players differ by factors
    failed = [turn["index"] for turn in document["turns"] if turn["error"] is not None]
    panels = [
        panel("time to first token", Seconds, lambda turn: turn["time_to_first_token_seconds"], marks=failed, **timed),
        panel("whole turn", Seconds, lambda turn: turn["total_seconds"], **timed),
        panel("RSS", Bytes, lambda turn: turn["rss_bytes"], empty="not known"),
        panel("KV", Bytes, lambda turn: turn["kv_live_bytes"] or turn["kv_computed_bytes"], empty="not known"),
    ]
    title = f"{label(document['model']['name'])}: one conversation, turn after turn"
    return Figure(
        pictures.draw("compare", title, panels, x="turn of the conversation"),
        "Time to first token, latency of whole turns, resident memory and KV of each player against the turn",
        "Players of marks alone are dots. Memory is of the server's processes: the runtime's is that of the worker. KV "
        "is measured for the runtime by the verifier; for the others it is computed from config.json, in "
        f"{document['rival_kv']['dtype']}, for the prompt and the answer.",
    )


def _line(document: _Document, number: int, measure: Callable[[_Document], float | None]) -> Line:
    """One player's values by turn: of a player of marks alone it is dots, between which nothing is known."""
    player = document["players"][number]
    points = [
        (turn["index"], value)
        for turn in document["turns"]
        if turn["player"] == player["name"] and turn["error"] is None and (value := measure(turn)) is not None
    ]
    return Line(player["name"], points, COLORS[number % len(COLORS)], "-" if player["plays_every_turn"] else "none")
