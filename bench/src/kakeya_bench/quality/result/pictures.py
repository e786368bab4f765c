"""The pictures of a report: recall against distance, perplexity by position."""

import math
from collections.abc import Mapping
from typing import Any

from kakeya_bench.report import pictures
from kakeya_bench.report.panels import COLORS, INK, Line, Panel, Point, Stretch, Ticks
from kakeya_bench.report.pictures import Picture
from kakeya_bench.report.quantities import Share

_Entry = Mapping[str, Any]


def recall(document: _Entry) -> Picture:
    """A panel for facts that the user tells and one for those of the system message, for each policy."""
    distances = document["settings"]["distances"]
    powers = range(math.floor(math.log2(distances[0])), math.ceil(math.log2(distances[-1])) + 1)

    def line(each: _Entry) -> Line:
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


def perplexity(document: _Entry) -> Picture:
    """A panel for all tokens and one for the assistant's, for each policy."""

    def points(curve: list[_Entry], key: str) -> list[Point]:
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


def _whole(document: _Entry, what: str, policy: str) -> list[_Entry]:
    """Of the mode that is measured whole."""
    mode = document["settings"]["weights"][0], policy
    return [each for each in document[what] if (each["weights"], each["policy"]) == mode]


def _colors(document: _Entry) -> dict[int, str]:
    """By S + W."""
    capacities = [max(document["settings"]["sinks"]) + window for window in document["settings"]["windows"]]
    return {capacity: COLORS[number % len(COLORS)] for number, capacity in enumerate(capacities)}


def _edges(document: _Entry) -> list[Stretch]:
    colors = _colors(document)
    return [Stretch(f"S + W = {capacity:,}", capacity, capacity, color) for capacity, color in colors.items()]


def _style(each: _Entry, document: _Entry) -> tuple[str, str]:
    """Colour, and how the line is drawn."""
    has_most = each["sink"] == max(document["settings"]["sinks"])
    return _colors(document)[each["sink"] + each["window"]], "-." if each.get("pinned") else "-" if has_most else "--"


def _name(each: _Entry) -> str:
    name = f"S = {each['sink']}, W = {each['window']}"
    return f"pinned: {name}" if each.get("pinned") else name
