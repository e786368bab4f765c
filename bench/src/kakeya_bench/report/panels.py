"""What a picture shows, before it is drawn: panels of series."""

from collections.abc import Sequence
from dataclasses import dataclass

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Told apart by all eyes (Okabe and Ito 2008)."""
INK = "#1b1b1d"
"""Of everything that is no data."""
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Line:
    """Points in an order.

    Attributes:
        points: ascending in x.
        style: of the line, as matplotlib names it; "none" for points that are not joined.
        bounds: beside each point, the lowest and the highest that it may be in truth.
    """

    name: str
    points: Sequence[Point]
    color: str = ""
    style: str = "-"
    bounds: Sequence[Point] = ()


@dataclass(frozen=True, slots=True)
class Cloud:
    """Many measurements of one thing, in any order: points where they are few, percentiles where they are many.

    Attributes:
        noun: what a point is.
    """

    name: str
    points: Sequence[Point]
    color: str = ""
    noun: str = "turn"


@dataclass(frozen=True, slots=True)
class Level:
    """A straight line across the panel: a limit, a bound. Only what lies near the data widens the axis."""

    name: str
    value: float
    style: str = "--"


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the horizontal axis that is set off; one place where both ends are the same."""

    name: str
    start: float
    end: float
    color: str = INK


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes.

    Attributes:
        quantity: what the values are: `Seconds`, `Bytes` or float; it decides the unit.
        marks: places of what has no value, such as turns that failed; crosses above the data.
        empty: what is said where there are no points.
        is_logarithmic: the vertical axis; values are above zero then.
        may_be_logarithmic: it is where few values are far larger than the others.
        may_be_negative: the vertical axis need not begin at zero.
        unit: of float.
    """

    name: str
    quantity: type
    series: Sequence[Line | Cloud]
    levels: Sequence[Level] = ()
    stretches: Sequence[Stretch] = ()
    marks: Sequence[float] = ()
    marks_name: str = "failed"
    empty: str = "nothing was measured"
    is_logarithmic: bool = False
    may_be_logarithmic: bool = False
    may_be_negative: bool = False
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Ticks:
    """Places of a horizontal axis that doubles, with their names."""

    places: Sequence[float]
    names: Sequence[str]
