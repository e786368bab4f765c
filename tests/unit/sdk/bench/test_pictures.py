from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import matplotlib
import pytest
from matplotlib.figure import Figure

from kakeya.bench import pictures
from kakeya.bench.pictures import COLORS, Picture
from tests.unit.sdk.bench.drawn import image, share_of_paper, words


def line(*values: float, name: str = "a line") -> Callable[[Figure], None]:
    """What paints one."""

    def paint(figure: Figure) -> None:
        (panel,) = pictures.rows(figure, 1)
        panel.plot(range(len(values)), values, color=COLORS[0], label=name)
        pictures.count_axis(panel, "turn")
        pictures.value_axis(panel, "latency", "ms", values)
        pictures.legend(panel, "a title")

    return paint


def draw(paint: Callable[[Figure], None]) -> Picture:
    return pictures.draw("name", 5.0, 3.0, paint)


def test_a_picture_is_a_png_on_white_and_an_svg_for_a_page() -> None:
    picture = draw(line(1, 2, 3))
    assert picture.name == "name"
    assert image(picture.png).size == (650, 390)
    assert 0.7 < share_of_paper(picture.png) < 0.99
    root = ET.fromstring(picture.svg)
    assert (root.tag, root.get("viewBox"), root.get("width")) == ("svg", "0 0 360 216", None)
    assert {"a line", "a title", "turn", "latency (ms)"} <= {*words(picture).splitlines()}


def test_the_svg_takes_colours_and_font_of_its_page_and_loads_nothing() -> None:
    picture = draw(line(1, 2, 3))
    styles = [element.get("style", "") for element in ET.fromstring(picture.svg).iter()]
    assert any("stroke: var(--series-0, #0072b2)" in style for style in styles)
    assert any("fill: currentColor" in style for style in styles)
    assert not [style for style in styles if pictures.INK in style or "DejaVu" in style or "#ffffff" in style]
    assert "http" not in picture.svg
    assert "data:" not in picture.svg


def test_the_same_figure_has_the_same_bytes_and_another_one_has_others() -> None:
    assert draw(line(1, 2, 3)) == draw(line(1, 2, 3))
    one, other = draw(line(1, 2, 3)), draw(line(1, 3, 3))
    assert one.png != other.png
    assert one.svg != other.svg


def test_a_matplotlibrc_changes_nothing_and_is_left_as_it_was() -> None:
    plain = draw(line(1, 2, 3))
    own: dict[Any, Any] = {"lines.linewidth": 9.0, "axes.facecolor": "black", "font.size": 20.0, "svg.fonttype": "path"}
    with matplotlib.rc_context(own):
        assert draw(line(1, 2, 3)) == plain
        assert {name: matplotlib.rcParams[name] for name in own} == own


def test_a_name_is_drawn_as_it_is() -> None:
    picture = draw(line(1, 2, name=r"$\frac$ <b> & 漢"))
    assert r"$\frac$ <b> & 漢" in words(picture)


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("worker-1", "worker-1"),
        ("two\nlines\x00", "two\N{REPLACEMENT CHARACTER}lines\N{REPLACEMENT CHARACTER}"),
        ("x" * 40, "x" * 40),
        ("x" * 41, "x" * 39 + "…"),
    ],
)
def test_a_label_is_one_short_line(text: str, drawn: str) -> None:
    assert pictures.label(text) == drawn
    assert drawn in words(draw(line(1, 2, name=pictures.label(text))))


def test_the_legend_is_beside_the_data() -> None:
    def paint(figure: Figure) -> None:
        line(1, 2, 3)(figure)
        figures.append(figure)

    figures: list[Figure] = []
    draw(paint)
    (panel,) = figures[0].axes
    legend = panel.get_legend()
    assert legend is not None
    assert panel.get_window_extent().x1 < legend.get_window_extent().x0
    assert legend.get_window_extent().x1 <= figures[0].bbox.x1


def test_without_a_name_there_is_no_legend() -> None:
    panel = Figure().subplots()
    panel.plot([1, 2])
    pictures.legend(panel, "a title")
    assert panel.get_legend() is None


def test_counts_are_whole_and_have_separators() -> None:
    panel = Figure().subplots()
    panel.set_xlim(0, 2)
    pictures.count_axis(panel, "turn")
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["0", "1", "2"]
    panel.set_xlim(0, 2_000)
    assert "1,000" in [tick.get_text() for tick in panel.get_xticklabels()]


def test_values_begin_at_zero() -> None:
    panel = Figure().subplots()
    pictures.value_axis(panel, "memory", "MiB", [300.0, 310.0])
    assert panel.get_ylim() == pytest.approx((0.0, 1.08 * 310))
    assert panel.get_ylabel() == "memory (MiB)"


@pytest.mark.parametrize("values", [[], [0.0]])
def test_an_axis_may_have_nothing_to_show(values: list[float]) -> None:
    panel = Figure().subplots()
    pictures.duration_axis(panel, "latency", "ms", values)
    assert (panel.get_yscale(), panel.get_ylabel()) == ("linear", "latency (ms)" if values else "latency")
    assert bool(len(panel.get_yticks())) == bool(values)


@pytest.mark.parametrize(("longest", "scale"), [(19.0, "linear"), (21.0, "log")])
def test_an_axis_of_durations_is_logarithmic_where_one_stalls(longest: float, scale: str) -> None:
    panel = Figure().subplots()
    pictures.duration_axis(panel, "latency", "s", [0.0, 0.8, 1.0, 1.0, longest])
    assert panel.get_yscale() == scale
    assert ("logarithmic" in panel.get_ylabel()) == (scale == "log")
    low, high = panel.get_ylim()
    assert (low == 0.0) == (scale == "linear")
    assert low < 0.8 < longest < high


def test_a_logarithmic_axis_has_plain_numbers() -> None:
    def paint(figure: Figure) -> None:
        (panel,) = pictures.rows(figure, 1)
        values = [1.0, 1.0, 1.0, 4_000.0]
        panel.plot(values)
        pictures.duration_axis(panel, "latency", "ms", values)

    assert {"1", "10", "1,000"} <= {*words(draw(paint)).splitlines()}


def test_words_may_stand_in_place_of_data() -> None:
    def paint(figure: Figure) -> None:
        above, below = pictures.rows(figure, 2)
        pictures.say(above, "nothing above")
        pictures.say(below, "nothing below")

    picture = draw(paint)
    assert "nothing above" in words(picture)
    assert "nothing below" in words(picture)


def test_the_lighter_colours_of_dark_pages_are_those_of_all_series() -> None:
    from kakeya.bench.page_style import CSS

    dark, print_ = (CSS.partition(media)[2] for media in ("prefers-color-scheme: dark", "@media print"))
    for number in range(len(COLORS)):
        assert f"--series-{number}: #" in dark
        assert f"--series-{number}: initial" in print_
