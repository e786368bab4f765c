"""Many measurements against something that grows: points where they are few, percentiles where they are many."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from kakeya.bench.percentile import median, percentile

MAX_POINTS = 600
"""More than that in one panel are drawn as bands, so that a page of a run of days stays small."""
NUM_BANDS = 120
FEWEST_IN_BAND = 20
FEWEST_FOR_MEDIAN = 5

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Band:
    """What neighbours along the horizontal axis are like.

    Attributes:
        x: their median place.
        low, high: 5th and 95th percentile.
        most: their maximum.
    """

    x: float
    low: float
    middle: float
    high: float
    most: float


@dataclass(frozen=True, slots=True)
class Series:
    """Measurements with a name, in any order; an empty name is not in the legend."""

    name: str
    color: str
    points: Sequence[Point]


def paint(panel: Axes, many: Sequence[Series], noun: str = "turn") -> str:
    """Draws the series and says, for the legend, what is drawn.

    Args:
        noun: what a point is.
    """
    # By place alone: where many points have one place, a band that ends amid them would get the lowest of them.
    known = [Series(each.name, each.color, sorted(each.points, key=_x)) for each in many if each.points]
    num_points = sum(len(each.points) for each in known)
    if num_points <= MAX_POINTS:
        width = rolling_width(max((len(each.points) for each in known), default=0))
        num_lines = sum(_paint_points(panel, each, width) for each in known)
        return f"points: each {noun}\nline: median of {width}" if num_lines else f"points: each {noun}"
    sizes = [_paint_bands(panel, each, alpha=0.2 / math.sqrt(len(known))) for each in known]
    return f"line: median of {max(sizes):,} {noun}s\nband: 5 % to 95 %\nthin: maximum"


def rolling_width(num_points: int) -> int:
    """How many neighbours a rolling median is of: a tenth, odd."""
    return max(FEWEST_FOR_MEDIAN, num_points // 10 | 1)


def rolling_median(values: Sequence[float], width: int) -> list[float]:
    """The median of each value and its nearest neighbours: as many on the left as on the right, but at both ends.

    Args:
        width: at most as many as there are values.
    """
    last = len(values) - width
    starts = (min(max(0, place - width // 2), last) for place in range(len(values)))
    return [median(values[start : start + width]) for start in starts]


def bands(points: Sequence[Point], num_bands: int) -> list[Band]:
    """Percentiles of equally many neighbours each.

    Args:
        points: at least as many as bands, in the order of the horizontal axis.
    """
    return [_band(part) for part in _parts(points, num_bands)]


def thinned(points: Sequence[Point], num_parts: int) -> list[Point]:
    """The points of a line that looks the same: the lowest and the highest of so many parts, and both ends.

    Args:
        points: in the order of the horizontal axis; they are returned as they are where there are no more than that.
    """
    if len(points) <= 2 * num_parts:
        return list(points)
    kept = [point for part in _parts(points, num_parts) for point in sorted({min(part, key=_y), max(part, key=_y)})]
    return [points[0], *kept, points[-1]]


def _x(point: Point) -> float:
    return point[0]


def _y(point: Point) -> float:
    return point[1]


def _parts(points: Sequence[Point], num_parts: int) -> Iterator[Sequence[Point]]:
    for number in range(num_parts):
        yield points[number * len(points) // num_parts : (number + 1) * len(points) // num_parts]


def _band(points: Sequence[Point]) -> Band:
    ordered = sorted(y for _, y in points)
    low, middle, high = (percentile(ordered, share) for share in (0.05, 0.5, 0.95))
    return Band(median(x for x, _ in points), low, middle, high, ordered[-1])


def _paint_points(panel: Axes, series: Series, width: int) -> bool:
    """Returns whether there are enough for a line."""
    x, y = [x for x, _ in series.points], [y for _, y in series.points]
    has_line = len(y) >= width
    panel.plot(
        x, y, linestyle="none", marker="o", markersize=2.6 if has_line else 4.0, markeredgewidth=0, color=series.color,
        alpha=0.4 if has_line else 1.0, label=None if has_line else series.name,
    )  # fmt: skip
    if has_line:
        panel.plot(x, rolling_median(y, width), color=series.color, linewidth=1.5, label=series.name)
    return has_line


def _paint_bands(panel: Axes, series: Series, *, alpha: float) -> int:
    """Returns of how many points the largest band is."""
    num_bands = min(NUM_BANDS, max(1, len(series.points) // FEWEST_IN_BAND))
    found = bands(series.points, num_bands)
    x = [band.x for band in found]
    panel.fill_between(
        x, [band.low for band in found], [band.high for band in found], color=series.color, alpha=alpha, linewidth=0
    )
    panel.plot(x, [band.most for band in found], color=series.color, linewidth=0.5, alpha=0.6)
    marker = "o" if num_bands == 1 else None  # a line of one point cannot be seen
    panel.plot(x, [band.middle for band in found], color=series.color, linewidth=1.5, marker=marker, label=series.name)
    return -(-len(series.points) // num_bands)
