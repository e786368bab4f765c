"""What a new token costs, however long the history is."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kakeya.bench import cloud, pictures, units
from kakeya.bench.cloud import Series
from kakeya.bench.pictures import COLORS, INK, Picture
from kakeya.bench.session import stretches
from kakeya.bench.session.played import Played
from kakeya.bench.turn import Turn
from kakeya.bench.units import Unit

_ALL, _HEAD, _TAIL = COLORS[0], COLORS[2], COLORS[1]


def draw(played: Played) -> Picture:
    """Seconds to the first token per new token against the history before the turn; the gate's stretches are marked."""

    def paint(figure: Figure) -> None:
        figure.suptitle(f"{pictures.label(played.model)}: what a new token costs")
        (panel,) = pictures.rows(figure, 1)
        _paint(panel, played)
        pictures.count_axis(panel, "history before the turn (tokens)")

    return pictures.draw("prefill", 10.0, 4.4, paint)


def _paint(panel: Axes, played: Played) -> None:
    turns = _with_first_token(played.turns)
    costs = [_cost([turn]) for turn in turns]
    unit = units.of_seconds(max(costs, default=0.0))
    points = [(turn.history_before, cost / unit.size) for turn, cost in zip(turns, costs, strict=True)]
    drawn = cloud.paint(panel, [Series("turns of all sessions", _ALL, points)])
    pictures.duration_axis(panel, "time to first token\nper new token", unit.name, [cost for _, cost in points])
    if not turns:
        pictures.say(panel, "no turn had a first token" if played.succeeded else played.why_nothing)
    for capacity in played.capacities if turns else []:
        panel.axvline(capacity, color=INK, linestyle=":", linewidth=1, label=f"S + W = {capacity:,} tokens")
    _paint_stretches(panel, played, unit)
    pictures.legend(panel, drawn if turns else "")


def _paint_stretches(panel: Axes, played: Played, unit: Unit) -> None:
    """Head and tail, where they are long enough for the gate to compare them."""
    head, tail = map(_with_first_token, stretches.head_and_tail(played.turns, played.num_warm_up_turns))
    if min(len(head), len(tail)) < stretches.FEWEST:
        return
    for name, turns, color in (("head", head, _HEAD), ("tail", tail, _TAIL)):
        histories = [turn.history_before for turn in turns]
        extent = min(histories), max(histories)
        mean = _cost(turns)
        panel.axvspan(*extent, color=color, alpha=0.15, linewidth=0)
        panel.plot(
            extent, [mean / unit.size] * 2, color=color, linewidth=3, solid_capstyle="butt",
            label=f"{name}: {unit.text(mean, 3)} a token\nin {len(turns):,} turns",
        )  # fmt: skip


def _with_first_token(turns: Sequence[Turn]) -> list[Turn]:
    return [
        turn
        for turn in turns
        if turn.error is None and turn.time_to_first_token_seconds is not None and turn.num_new_tokens
    ]


def _cost(turns: Sequence[Turn]) -> float:
    """Seconds in all over tokens in all, as the gate has it."""
    seconds = math.fsum(turn.time_to_first_token_seconds or 0.0 for turn in turns)
    return seconds / sum(turn.num_new_tokens for turn in turns)
