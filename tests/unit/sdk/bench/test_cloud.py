import random
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kakeya.bench import cloud
from kakeya.bench.cloud import Point, Series


@pytest.fixture
def panel() -> Axes:
    return Figure().subplots()


def noise(num_points: int, *, seed: int = 0) -> list[Point]:
    draw = random.Random(seed)
    return [(float(x), draw.uniform(1.0, 2.0)) for x in range(num_points)]


def lines(panel: Axes) -> list[list[Point]]:
    drawn: list[Any] = [line.get_xydata() for line in panel.lines]
    return [[(float(x), float(y)) for x, y in each] for each in drawn]


def test_few_points_are_drawn_each_with_their_rolling_median(panel: Axes) -> None:
    points = noise(40)
    assert cloud.paint(panel, [Series("one", "#0072b2", points[::-1])], "request") == (
        "points: each request\nline: median of 5"
    )
    drawn, rolling = lines(panel)
    assert drawn == points
    assert rolling[20] == (20.0, sorted(y for _, y in points[18:23])[2])
    assert panel.get_legend_handles_labels()[1] == ["one"]
    assert not panel.collections


def test_a_few_have_no_median(panel: Axes) -> None:
    assert (
        cloud.paint(panel, [Series("one", "#0072b2", noise(4)), Series("none", "#d55e00", [])]) == "points: each turn"
    )
    assert lines(panel) == [noise(4)]
    assert panel.get_legend_handles_labels()[1] == ["one"]


def test_the_median_is_of_a_tenth_and_odd() -> None:
    assert [cloud.rolling_width(number) for number in (0, 40, 130, 600)] == [5, 5, 13, 61]


def test_a_rolling_median_is_of_the_nearest_at_the_ends_too() -> None:
    assert cloud.rolling_median([9, 1, 2, 3, 0, 5, 90], 3) == [2, 2, 2, 2, 3, 5, 5]
    assert cloud.rolling_median([3, 1, 2], 3) == [2, 2, 2]


def test_many_points_are_drawn_as_percentiles_of_neighbours(panel: Axes) -> None:
    num_points = 24_000
    points = [(float(x), float(x % 200)) for x in range(num_points)]
    random.Random(0).shuffle(points)
    says = cloud.paint(panel, [Series("one", "#0072b2", points)])
    assert says == "line: median of 200 turns\nband: 5 % to 95 %\nthin: maximum"
    most, middle = lines(panel)
    assert {y for _, y in most} == {199.0}
    assert {y for _, y in middle} == {99.5}
    assert [x for x, _ in middle] == [99.5 + 200 * number for number in range(120)]
    (band,) = panel.collections
    edge: Any = band.get_paths()[0].vertices
    assert {round(float(y), 2) for _, y in edge} == {9.95, 189.05}


def test_series_count_together_and_a_short_one_among_them_is_one_band(panel: Axes) -> None:
    says = cloud.paint(panel, [Series("long", "#0072b2", noise(600)), Series("short", "#d55e00", [(7.0, 1.5)])])
    assert says.startswith("line: median of 20 turns")
    assert [len(line) for line in lines(panel)] == [30, 30, 1, 1]
    assert panel.lines[-1].get_marker() == "o", "a line of one point would not be seen"


def test_points_of_one_place_stay_in_the_order_they_came_in(panel: Axes) -> None:
    points = [(1.0, 5.0), (0.0, 2.0), (0.0, 1.0), (0.0, 3.0)]
    cloud.paint(panel, [Series("one", "#0072b2", points)])
    assert lines(panel) == [[(0.0, 2.0), (0.0, 1.0), (0.0, 3.0), (1.0, 5.0)]]


def test_a_thinned_line_keeps_its_ends_and_every_extreme() -> None:
    points = noise(10_000)
    points[1234], points[6789] = (1234.0, 50.0), (6789.0, -50.0)
    thinned = cloud.thinned(points, 100)
    assert len(thinned) == 202
    assert thinned == sorted(thinned)
    assert {points[0], points[1234], points[6789], points[-1]} <= {*thinned} <= {*points}
    assert cloud.thinned(points[:200], 100) == points[:200]
    assert len(cloud.thinned([(float(x), 1.0) for x in range(1_000)], 100)) == 102, "a flat part is one point"
