"""What more workers and more idle sessions cost, drawn; of `make bench-scale`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kakeya_bench.report.panels import COLORS, Line, Panel, Ticks
from kakeya_bench.report.pictures import Picture, draw
from kakeya_bench.report.quantities import Seconds

_SHARE = ("router's share of a core, without a call", float, {"router": "router_core_share"})
_PANELS: Mapping[str, Sequence[tuple[str, type, Mapping[str, str]]]] = {
    "workers": [("CreateSession", Seconds, {"p50": "create_p50", "p95": "create_p95"}), _SHARE],
    "idle sessions": [
        ("a life and a resume, p50", Seconds, {"life": "life_p50", "resume": "resume_p50"}),
        _SHARE,
    ],
}
"""By what there are many of: of each panel its name, quantity, and the figures by the names of their lines."""


def pictures(found: Mapping[str, Any]) -> Iterator[Picture]:
    """Of what was measured; none of what was not.

    Args:
        found: by "10 workers", "1,000 idle sessions" and so on, among others.
    """
    for noun, panels in _PANELS.items():
        measured = {int(name.removesuffix(f" {noun}").replace(",", "")): each for name, each in _of(found, noun)}
        if measured:
            ticks = Ticks([*measured], [f"{number:,}" for number in measured])
            drawn = [_panel(*panel, measured) for panel in panels]
            yield draw(noun.replace(" ", "-"), f"What more {noun} cost a router", drawn, x=noun, ticks=ticks)


def _of(found: Mapping[str, Any], noun: str) -> Iterator[tuple[str, Mapping[str, float]]]:
    return ((name, each) for name, each in found.items() if name.endswith(f" {noun}"))


def _panel(name: str, quantity: type, lines: Mapping[str, str], measured: Mapping[int, Mapping[str, float]]) -> Panel:
    series = [
        Line(title, [(number, float(each[figure])) for number, each in measured.items()], color)
        for (title, figure), color in zip(lines.items(), COLORS, strict=False)
    ]
    return Panel(name, quantity, series)
