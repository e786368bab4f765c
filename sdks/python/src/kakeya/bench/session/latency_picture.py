"""What each turn took."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kakeya.bench import cloud, pictures, units
from kakeya.bench.cloud import Series
from kakeya.bench.pictures import COLORS, INK, Picture
from kakeya.bench.session.played import Played
from kakeya.bench.turn import Turn

MAX_ERROR_MARKS = 100


def draw(played: Played) -> Picture:
    """Turn latency and time to first token against the number of the turn."""

    def paint(figure: Figure) -> None:
        figure.suptitle(f"{pictures.label(played.model)}: what a turn takes")
        above, below = pictures.rows(figure, 2)
        _paint(above, played, "turn latency", lambda turn: turn.wall_seconds)
        _paint(below, played, "time to first token", lambda turn: turn.time_to_first_token_seconds)
        pictures.count_axis(below, "turn of its session")

    return pictures.draw("latency", 10.0, 6.4, paint)


def _paint(panel: Axes, played: Played, name: str, measure: Callable[[Turn], float | None]) -> None:
    many = _series(played, measure)
    seconds = [value for each in many for _, value in each.points]
    unit = units.of_seconds(max(seconds, default=0.0))
    scaled = [Series(each.name, each.color, [(x, y / unit.size) for x, y in each.points]) for each in many]
    drawn = cloud.paint(panel, scaled)
    pictures.duration_axis(panel, name, unit.name, [value / unit.size for value in seconds])
    if not seconds:
        pictures.say(panel, played.why_nothing)
    _paint_warm_up(panel, played)
    _paint_errors(panel, played.failed)
    pictures.legend(panel, drawn if seconds else "")


def _series(played: Played, measure: Callable[[Turn], float | None]) -> list[Series]:
    """One a session; all in one where they are more than can be told apart."""
    groups = {
        f"session {session}": [(turn.index, value) for turn in turns if (value := measure(turn)) is not None]
        for session, turns in played.by_session().items()
    }
    if len(groups) > len(COLORS):
        groups = {f"all {len(groups):,} sessions": [point for points in groups.values() for point in points]}
    return [
        Series(name, color, points) for (name, points), color in zip(groups.items(), COLORS, strict=False) if points
    ]


def _paint_warm_up(panel: Axes, played: Played) -> None:
    num_turns = min(played.num_warm_up_turns, max((turn.index for turn in played.succeeded), default=0))
    if num_turns:
        panel.axvspan(0.5, num_turns + 0.5, color=INK, alpha=0.08, linewidth=0, label="warm-up")


def _paint_errors(panel: Axes, failed: Sequence[Turn]) -> None:
    """Above the data: what a turn took that failed says little of those that did not."""
    if not failed:
        return
    indices = sorted({turn.index for turn in failed})
    step = -(-len(indices) // MAX_ERROR_MARKS)
    panel.plot(
        indices[::step], [1.02] * len(indices[::step]), transform=panel.get_xaxis_transform(), linestyle="none",
        marker="x", markersize=5, color=INK, clip_on=False, label=f"failed: {len(failed):,}",
    )  # fmt: skip
