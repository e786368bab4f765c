"""What a report says and shows: a summary for the terminal, a card and a page with pictures for everything.

Models carry the card with them, which is Markdown.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from kakeya_bench.quality import floors
from kakeya_bench.quality.plan import middle
from kakeya_bench.report import blocks, markdown, page, pictures
from kakeya_bench.report.blocks import Figure, Section, Table
from kakeya_bench.report.panels import COLORS, INK, Line, Panel, Point, Stretch, Ticks
from kakeya_bench.report.pictures import Picture
from kakeya_bench.report.quantities import Precise, Share
from kakeya_bench.statistics.share import told

JSON_NAME = "quality.json"
_OVER = ("value", "of_answers")
_FACTS = {("user", False): "the user tells", ("system", False): "the system message", ("system", True): "pinned"}
_Document = Mapping[str, Any]


def summary(document: _Document) -> tuple[str, list[Section]]:
    """What is printed at the end of a run."""
    return _title(document), [*_tables(document), *_findings(document)]


def files(document: _Document) -> dict[str, bytes]:
    """The card, the page and the pictures by their names; the same document gives the same bytes."""
    title, verdicts = _title(document), _verdicts(document)
    model = {name: value for name, value in document["model"].items() if name != "modes"}
    sections = [
        *_findings(document),
        Section("Pictures", _figures(document)),
        *_tables(document),
        blocks.facts("Model", model | document["model"]["modes"]),
        blocks.facts("Settings", document["settings"]),
        blocks.facts("Run", {name: document[name] for name in ("made_at", "seconds")} | document["environment"]),
    ]
    badges = [blocks.worst(verdicts)] if verdicts else []
    drawn = page.files(title, badges, sections, json_name=JSON_NAME, html_name="report.html")
    return {"card.md": markdown.markdown(title, sections), **drawn}


def _title(document: _Document) -> str:
    return f"{document['model']['name']}: what a bounded cache costs"


def _verdicts(document: _Document) -> dict[str, dict[str, Any]]:
    return {verdict.gate: verdict.document() for verdict in floors.verdicts(document)}


def _findings(document: _Document) -> Iterator[Section]:
    yield Section("What follows", document["conclusions"])
    if verdicts := _verdicts(document):
        yield Section("Floors", [blocks.gates(verdicts)])


def _figures(document: _Document) -> list[Figure]:
    return [
        Figure(
            _drawn_recall(document),
            "Recall against the distance of the question from what it asks for",
            "Solid: the most sinks; dashed: fewer in the same memory; dash-dotted: the system message is pinned. "
            "Shaded: Wilson's 95 % interval. Dotted: S + W.",
        ),
        Figure(
            _drawn_perplexity(document),
            "Perplexity by the position in the text",
            "Left of its S + W a session sees everything; full attention does everywhere.",
        ),
    ]


def _tables(document: _Document) -> Iterator[Section]:
    settings = document["settings"]
    whole = settings["weights"] if settings["full"] else settings["weights"][:1]
    says = (
        f"Measured whole: {', '.join(whole)}. Other modes, and unless with --full facts in the system message and "
        f"recall with fewer sinks, only at the middle window: {middle(settings['windows'])}. Worst: of the distances "
        f"at which at least {settings['enough']} were asked; others stand in brackets. Shares: Wilson's 95 % interval."
    )
    yield Section("Recall against distance", [says, _recall(document["recall"], settings["enough"])])
    if document["multi_turn"]:
        rows = [
            [*_sessions(each), told(each["in_sight"]), told(each["out_of_sight"])] for each in document["multi_turn"]
        ]
        yield Section("Multi-turn recall", [Table(["several facts", "S+W", "in sight", "out of sight"], rows)])
    yield Section("Perplexity by position", [_perplexity(document["perplexity"])])
    if document["left_out"]:
        yield Section("Left out", document["left_out"])


def _recall(recalls: list[_Document], enough: int) -> Table:
    """A row a configuration, a column a distance; in brackets where too little was asked to judge it."""
    targets = sorted({at["target"] for each in recalls for at in each["by_distance"]})
    rows: list[list[object]] = []
    for each in recalls:
        by_target = {
            at["target"]: Share(at["share"]) if at["num"] >= enough else f"({at['share']:.1%})"
            for at in each["by_distance"]
        }
        worst = (None if share is None else Share(share) for share in (each["lowest_inside"], each["lowest_beyond"]))
        rows.append(
            [
                *_sessions(each),
                _FACTS[each["told_by"], each["pinned"]],
                told(each["inside"]),
                *worst,
                each["falls_at"],
                *map(by_target.get, targets),
            ]
        )
    by_distance = [f"≤ {target}" for target in targets]
    columns = ["one fact", "S+W", "that", "recall in sight", "worst in sight", "worst beyond", "falls at", *by_distance]
    return Table(columns, rows, on_page=by_distance)


def _perplexity(perplexities: list[_Document]) -> Table:
    rows = [
        [
            *_sessions(each),
            f"{bucket['start']:,} to {bucket['stop']:,}",
            "past the wrap" if bucket["start"] else "inside",
            bucket["num_tokens"],
            *(_number(over and over[key]) for over in (bucket, bucket["full_attention"]) for key in _OVER),
        ]
        for each in perplexities
        for bucket in each["buckets"]
    ]
    columns = ["text", "S+W", "positions", "", "tokens", "perplexity", "of answers", "full", "full, of answers"]
    return Table(columns, rows)


def _sessions(each: _Document) -> list[object]:
    """What a row is about, and S + W."""
    return [f"{each['weights']} {each['policy']} S={each['sink']} W={each['window']}", each["sink"] + each["window"]]


def _number(value: float | None) -> Precise | None:
    return None if value is None else Precise(value)


def _drawn_recall(document: _Document) -> Picture:
    """A panel for facts that the user tells and one for those of the system message, for each policy."""
    distances = document["settings"]["distances"]
    powers = range(math.floor(math.log2(distances[0])), math.ceil(math.log2(distances[-1])) + 1)

    def line(each: _Document) -> Line:
        points = [(at["distance"], at["share"]) for at in each["by_distance"]]
        bounds = [(at["low"], at["high"]) for at in each["by_distance"]]
        return Line(_name(each), points, *_style(each, document), bounds=bounds)

    panels = [
        Panel(
            f"recalled, told\nby the {told_by}, {policy}",
            Share,
            [line(each) for each in _whole(document, "recall", policy) if each["told_by"] == told_by],
            stretches=_edges(document),
        )
        for policy in document["settings"]["policies"]
        for told_by in ("user", "system")
    ]
    ticks = Ticks([2**power for power in powers], [f"{2**power:,}" for power in powers])
    title = f"{document['model']['name']}: recall against distance"
    return pictures.draw("recall", title, panels, x="distance (tokens)", ticks=ticks)


def _drawn_perplexity(document: _Document) -> Picture:
    """A panel for all tokens and one for the assistant's, for each policy."""

    def points(curve: list[_Document], key: str) -> list[Point]:
        """In the middles of the intervals."""
        return [((each["start"] + each["stop"]) / 2, each[key]) for each in curve if each[key] is not None]

    full = document["full_attention"][document["settings"]["weights"][0]]
    panels = [
        Panel(
            f"perplexity of\n{tokens}, {policy}",
            float,
            [
                *(
                    Line(_name(each), points(each["curve"], key), *_style(each, document))
                    for each in _whole(document, "perplexity", policy)
                ),
                Line("full attention", points(full, key), INK),
            ],
            stretches=_edges(document),
            may_be_negative=True,  # it is not, but lies near 1, and an axis from zero on would hide what there is
        )
        for policy in document["settings"]["policies"]
        for tokens, key in (("all tokens", "value"), ("answers", "of_answers"))
    ]
    title = f"{document['model']['name']}: perplexity by position"
    return pictures.draw("perplexity", title, panels, x="position (tokens)")


def _whole(document: _Document, what: str, policy: str) -> list[_Document]:
    """Of the mode that is measured whole."""
    mode = document["settings"]["weights"][0], policy
    return [each for each in document[what] if (each["weights"], each["policy"]) == mode]


def _colors(document: _Document) -> dict[int, str]:
    """By S + W."""
    capacities = [max(document["settings"]["sinks"]) + window for window in document["settings"]["windows"]]
    return {capacity: COLORS[number % len(COLORS)] for number, capacity in enumerate(capacities)}


def _edges(document: _Document) -> list[Stretch]:
    colors = _colors(document)
    return [Stretch(f"S + W = {capacity:,}", capacity, capacity, color) for capacity, color in colors.items()]


def _style(each: _Document, document: _Document) -> tuple[str, str]:
    """Colour, and how the line is drawn."""
    has_most = each["sink"] == max(document["settings"]["sinks"])
    return _colors(document)[each["sink"] + each["window"]], "-." if each.get("pinned") else "-" if has_most else "--"


def _name(each: _Document) -> str:
    name = f"S = {each['sink']}, W = {each['window']}"
    return f"pinned: {name}" if each.get("pinned") else name
