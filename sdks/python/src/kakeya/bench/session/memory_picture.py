"""What a session and a worker hold."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kakeya.bench import cloud, pictures, units
from kakeya.bench.cloud import Point
from kakeya.bench.pictures import COLORS, INK, Picture
from kakeya.bench.session.played import Played

MAX_NAMED_LINES = 12
MAX_POINTS = 2_400
"""Of all lines of a panel together."""
MIB = 2**20


def draw(played: Played) -> Picture:
    """KV bytes of sessions, memory of workers and how it grew, against the number of the turn."""
    limits = played.gates["rss_bounded"]["figures"]

    def paint(figure: Figure) -> None:
        figure.suptitle(f"{pictures.label(played.model)}: what is held")
        kv, rss, *growth = pictures.rows(figure, 3 if limits else 2)
        _paint_kv(kv, played)
        _paint_rss(rss, played)
        for panel in growth:
            _paint_growth(panel, played)
        pictures.count_axis([kv, rss, *growth][-1], "turn of its session")

    return pictures.draw("memory", 10.0, 8.6 if limits else 6.0, paint)


def _paint_kv(panel: Axes, played: Played) -> None:
    lines = {
        f"session {session}": [(turn.index, turn.kv_live_bytes) for turn in turns if turn.kv_live_bytes is not None]
        for session, turns in played.by_session().items()
    }
    token_bytes = played.bytes_per_token
    plateaus = {capacity: capacity * token_bytes for capacity in played.capacities} if token_bytes else {}
    most = max([*plateaus.values(), *(size for line in lines.values() for _, size in line)], default=0)
    unit = units.of_bytes(most)
    _paint_lines(panel, lines, unit.size)
    for capacity, plateau in plateaus.items():
        panel.axhline(
            plateau / unit.size, color=INK, linestyle="--", linewidth=1,
            label=f"{plateau:,} bytes by\nconfig.json for\nS + W = {capacity:,} tokens",
        )  # fmt: skip
    pictures.value_axis(panel, "kv_live_bytes", unit.name, [most / unit.size] if lines else [])
    if not lines:
        pictures.say(panel, played.why_nothing)
    pictures.legend(panel)


def _paint_rss(panel: Axes, played: Played) -> None:
    lines = _rss_lines(played, num_warm_up_turns=0)
    most = max((size for line in lines.values() for _, size in line), default=0)
    unit = units.of_bytes(most)
    _paint_lines(panel, lines, unit.size)
    pictures.value_axis(panel, "worker RSS", unit.name, [most / unit.size] if lines else [])
    if not lines:
        unknown = "the memory of the worker is not known: it takes an operator's key"
        pictures.say(panel, unknown if played.succeeded else played.why_nothing)
    pictures.legend(panel)


def _paint_growth(panel: Axes, played: Played) -> None:
    """The change since the first tenth, which a panel from zero on would hide, and what the gate allows."""
    limits = played.gates["rss_bounded"]["figures"]
    lines = {
        worker: [(index, size - limits[worker]["head_bytes"]) for index, size in line]
        for worker, line in _rss_lines(played, played.num_warm_up_turns).items()
        if worker in limits
    }
    _paint_lines(panel, lines, MIB)
    allowance = max(limit["allowance_bytes"] for limit in limits.values()) / MIB
    panel.axhline(0.0, color=INK, linewidth=0.6)
    for factor, style, what in ((1, "--", "for the\nmedian of the last tenth"), (2, ":", "for the\nmaximum")):
        panel.axhline(
            factor * allowance, color=INK, linestyle=style, linewidth=1,
            label=f"allowed: {factor * allowance:,.1f} MiB {what}",
        )  # fmt: skip
    panel.set_ylabel("RSS less the median of\nthe first tenth (MiB)")
    pictures.legend(panel)


def _rss_lines(played: Played, num_warm_up_turns: int) -> dict[str, list[Point]]:
    return {
        worker: [(turn.index, turn.worker_rss_bytes or 0) for turn in turns if turn.index > num_warm_up_turns]
        for worker, turns in played.by_worker().items()
    }


def _paint_lines(panel: Axes, lines: Mapping[str, Sequence[Point]], size: float) -> None:
    """All lines; the legend names the first ones."""
    num_parts = max(10, MAX_POINTS // 2 // max(1, len(lines)))
    for number, (name, line) in enumerate(lines.items()):
        points = cloud.thinned(line, num_parts)
        panel.plot(
            [x for x, _ in points], [y / size for _, y in points], color=COLORS[number % len(COLORS)], linewidth=1.3,
            linestyle=("-", "--", ":")[number // len(COLORS) % 3], label=_name(number, name, len(lines)),
            marker="o" if len(points) == 1 else None, markersize=4,
        )  # fmt: skip


def _name(number: int, name: str, num_lines: int) -> str:
    if number < MAX_NAMED_LINES:
        return pictures.label(name)
    return f"and {num_lines - MAX_NAMED_LINES:,} more" if number == MAX_NAMED_LINES else ""
