"""What turns take and servers hold, as the conversation grows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from kakeya.bench import pictures, units
from kakeya.bench.pictures import COLORS, INK, Picture

_Turn = Mapping[str, Any]
_LINES = ("-", "--", ":")


@dataclass(frozen=True, slots=True)
class Line:
    """One player's values by turn.

    Attributes:
        has_all_turns: else it is dots, between which nothing is known.
    """

    name: str
    color: str
    style: str
    has_all_turns: bool
    points: Sequence[tuple[int, float]]


def draw(document: Mapping[str, Any]) -> Picture:
    """Time to first token, turn latency, memory and KV against the number of the turn."""

    def paint(figure: Figure) -> None:
        figure.suptitle(f"{pictures.label(document['model']['name'])}: one conversation, turn after turn")
        panels = pictures.rows(figure, 4)
        _paint_seconds(panels[0], document, "time to first token", _time_to_first_token)
        _paint_seconds(panels[1], document, "whole turn", lambda turn: turn["total_seconds"])
        _paint_bytes(panels[2], document, "RSS", lambda turn: turn["rss_bytes"])
        _paint_bytes(panels[3], document, "KV", _kv_bytes)
        pictures.count_axis(panels[3], "turn of the conversation")
        pictures.legend(panels[0])

    return pictures.draw("compare", 10.0, 11.0, paint)


def _paint_seconds(
    panel: Axes, document: Mapping[str, Any], name: str, measure: Callable[[_Turn], float | None]
) -> None:
    """On a logarithmic axis, since players differ by factors."""
    lines = list(_lines(document, measure))
    seconds = [value for line in lines for _, value in line.points if value > 0]
    unit = units.of_seconds(min(seconds, default=1.0))
    _paint_lines(panel, lines, unit.size)
    pictures.value_axis(panel, name, unit.name, [second / unit.size for second in seconds])
    if not seconds:
        pictures.say(panel, "no turn succeeded")
        return
    panel.set_ylabel(f"{name}\n({unit.name}, logarithmic)")
    panel.set_yscale("log")
    panel.set_ylim(min(seconds) / unit.size / 1.3, max(seconds) / unit.size * 1.3)
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())


def _paint_bytes(panel: Axes, document: Mapping[str, Any], name: str, measure: Callable[[_Turn], float | None]) -> None:
    lines = list(_lines(document, measure))
    most = max((value for line in lines for _, value in line.points), default=0)
    unit = units.of_bytes(most)
    _paint_lines(panel, lines, unit.size)
    pictures.value_axis(panel, name, unit.name, [most / unit.size] if lines else [])
    if not lines:
        pictures.say(panel, "not known")


def _paint_lines(panel: Axes, lines: Sequence[Line], size: float) -> None:
    for line in lines:
        is_dotted = not line.has_all_turns or len(line.points) == 1
        panel.plot(
            [index for index, _ in line.points], [value / size for _, value in line.points], color=line.color,
            linewidth=1.3, linestyle="none" if is_dotted else line.style, marker="o" if is_dotted else None,
            markersize=5, markeredgecolor=INK, markeredgewidth=0.5, label=pictures.label(line.name),
        )  # fmt: skip


def _lines(document: Mapping[str, Any], measure: Callable[[_Turn], float | None]) -> Iterator[Line]:
    """Of the players of whom something is known."""
    for number, player in enumerate(document["players"]):
        points = [
            (turn["index"], value)
            for turn in document["turns"]
            if turn["player"] == player["name"] and turn["error"] is None and (value := measure(turn)) is not None
        ]
        if points:
            style = _LINES[number // len(COLORS) % len(_LINES)]
            yield Line(player["name"], COLORS[number % len(COLORS)], style, player["plays_every_turn"], points)


def _time_to_first_token(turn: _Turn) -> float | None:
    seconds: float | None = turn["time_to_first_token_seconds"]
    return seconds


def _kv_bytes(turn: _Turn) -> float | None:
    """What the verifier holds; of rivals what is computed."""
    live: int | None = turn["kv_live_bytes"]
    computed: int | None = turn["kv_computed_bytes"]
    return computed if live is None else live
