"""How goodput and waiting times change with the number of sessions."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from kakeya.bench import pictures, units
from kakeya.bench.pictures import COLORS, INK, Picture

FAR = 3
"""A limit that is more than so many times the highest value is said, not drawn: else nothing else could be seen."""
_Level = Mapping[str, Any]


def draw(document: Mapping[str, Any]) -> Picture:
    """Goodput, time to first token and time per output token against the number of sessions."""
    levels, limits = document["levels"], document["options"]["limits"]
    name = pictures.label(document["model"]["name"]) if document["model"] else "nobody"

    def paint(figure: Figure) -> None:
        figure.suptitle(f"{name}: answers in time, with so many sessions at once")
        goodput, first, each = pictures.rows(figure, 3)
        _paint_goodput(goodput, levels)
        _paint_seconds(first, levels, "time_to_first_token", limits)
        _paint_seconds(each, levels, "time_per_output_token", limits)
        _sessions_axis(each, levels)

    return pictures.draw("load", 10.0, 8.4, paint)


def _paint_goodput(panel: Axes, levels: Sequence[_Level]) -> None:
    good = _points(levels, "goodput_turns_per_s")
    answered = _points(levels, "turns_per_s")
    _line(panel, good, COLORS[0], "-", "goodput: within both limits")
    _line(panel, answered, COLORS[1], "--", "all that were answered")
    pictures.value_axis(panel, "turns", "1/s", [rate for _, rate in [*good, *answered]])
    _finish(panel, is_empty=not good)


def _paint_seconds(panel: Axes, levels: Sequence[_Level], name: str, limits: Mapping[str, float]) -> None:
    distributions = [(level["num_sessions"], level[f"{name}_s"]) for level in levels if level[f"{name}_s"]]
    most = max((figures["p95"] for _, figures in distributions), default=0.0)
    unit, limit = units.of_seconds(most), limits[f"{name}_seconds"]
    for share, color, style in (("p50", COLORS[0], "-"), ("p95", COLORS[1], "--")):
        _line(panel, [(number, figures[share] / unit.size) for number, figures in distributions], color, style, share)
    values = [most / unit.size] if distributions else []
    if distributions and limit <= FAR * most:
        panel.axhline(limit / unit.size, color=INK, linewidth=0.8, linestyle=":", label=f"limit: {limit:g} s")
        values.append(limit / unit.size)
    elif distributions:
        panel.plot([], [], linestyle="none", label=f"limit: {limit:g} s, far above")
    pictures.value_axis(panel, name.replace("_", " "), unit.name, values)
    _finish(panel, is_empty=not distributions)


def _line(panel: Axes, points: Sequence[tuple[int, float]], color: str, style: str, name: str) -> None:
    if points:
        numbers, values = zip(*points, strict=True)
        panel.plot(numbers, values, color=color, linestyle=style, linewidth=1.5, marker="o", markersize=4, label=name)


def _points(levels: Sequence[_Level], name: str) -> list[tuple[int, float]]:
    return [(level["num_sessions"], level[name]) for level in levels if level[name] is not None]


def _sessions_axis(panel: Axes, levels: Sequence[_Level]) -> None:
    """One place for each level, as far from the next as it is larger."""
    panel.set_xlabel("sessions at once")
    panel.set_xscale("log", base=2)
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_xticks([level["num_sessions"] for level in levels], [_tick(level) for level in levels])


def _tick(level: _Level) -> str:
    asked, inside = level["num_sessions"], level["num_opened"]
    return f"{asked:,}" if asked == inside else f"{asked:,}\n({inside:,} got in)"


def _finish(panel: Axes, *, is_empty: bool) -> None:
    if is_empty:
        pictures.say(panel, "no turn counts")
    pictures.legend(panel)
