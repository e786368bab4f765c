"""Figures as pictures, without a display: declared as panels of series, drawn by matplotlib."""

import base64
import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from kakeya_bench.report import quantities
from kakeya_bench.report.panels import COLORS, INK, Cloud, Line, Panel, Point, Ticks

LOGARITHMIC_FROM = 20
"""An axis may be logarithmic where the largest is so many times the median: else one stall flattens all others."""
MOST_POINTS = 600
"""More than that in one panel are drawn as bands, so that a page of a run of days stays small."""
MOST_NAMED = 12
FAR = 3
"""A level that is more than so many times the largest value is said, not drawn: else nothing else could be seen."""
_NUM_BANDS = 120
_FEWEST_IN_BAND = 10
_MAX_LABEL_CHARACTERS = 40
_with_separators = FuncFormatter(lambda value, _: f"{value:,.10g}")
_MAX_TITLE_CHARACTERS = 100
_STYLE: dict[Any, Any] = {  # matplotlib 3.11 has a type for these names, 3.10 has none
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.xmargin": 0.02,
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9,
    "grid.alpha": 0.35,
    "legend.fontsize": "small",
    "legend.frameon": False,
    "legend.title_fontsize": "small",
    "svg.fonttype": "none",
    "svg.hashsalt": "kakeya",
    "text.parse_math": False,  # the name of a model may have a dollar
}


def label(text: str, *, most: int = _MAX_LABEL_CHARACTERS) -> str:
    """Foreign text, e.g. the name of a worker, as a short line that can be drawn."""
    line = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    return line if len(line) <= most else f"{line[: most - 1]}…"


class Drawing:
    """Paints one panel on a pair of axes."""

    def __init__(self, panel: Panel, axis: Axes) -> None:
        self._panel = panel
        self._axis = axis
        values = [y for series in panel.series for _, y in series.points]
        self._values = np.array(values, float)
        sizes = np.abs([*values, *(level.value for level in panel.levels if panel.may_be_negative)])
        telling = np.median(sizes) if panel.is_logarithmic and values else sizes.max(initial=0.0)
        self._unit = quantities.unit(panel.quantity, float(telling))
        self._explanations: dict[str, None] = {}

    def paint(self) -> None:
        """All of it but the horizontal axis."""
        known = [series for series in self._panel.series if series.points]
        for number, series in enumerate(known):
            color = series.color or COLORS[number % len(COLORS)]
            name = _name(number, series.name, len(known))
            if isinstance(series, Line):
                self._paint_line(series, color, name)
            else:
                self._paint_cloud(series, color, name, most_points=max(len(each.points) for each in known))
        for stretch in self._panel.stretches:
            end = max(stretch.end, stretch.start)
            if end == stretch.start:
                self._axis.axvline(end, color=stretch.color, linestyle=":", linewidth=1, label=stretch.name)
            else:
                self._axis.axvspan(stretch.start, end, color=stretch.color, alpha=0.1, linewidth=0, label=stretch.name)
        self._finish_y(is_empty=not known)
        self._paint_marks()
        if self._axis.get_legend_handles_labels()[0]:
            self._axis.legend(
                loc="upper left",
                bbox_to_anchor=(1.01, 1.0),
                borderaxespad=0.0,
                alignment="left",
                title="\n".join(self._explanations) or None,
            )

    def _scaled(self, points: Sequence[Point]) -> "tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]":
        """By place alone: where many points have one place, a band that ends amid them would get the lowest of them."""
        x, y = np.array(points, float).T
        order = np.argsort(x, kind="stable")
        return x[order], y[order] / self._unit.size

    def _paint_line(self, line: Line, color: str, name: str | None) -> None:
        x, y = self._scaled(line.points)
        if line.bounds:
            low, high = np.array(line.bounds, float).T / self._unit.size
            self._axis.fill_between(x, low, high, color=color, alpha=0.12, linewidth=0)
        if len(x) > 2 * MOST_POINTS:  # the lowest and the highest of each part look the same
            parts = np.array_split(np.arange(len(x)), MOST_POINTS)
            kept = np.unique([place for part in parts for place in (part[y[part].argmin()], part[y[part].argmax()])])
            x, y = x[kept], y[kept]
        marker = "o" if len(x) < 20 or line.style == "none" else None
        self._axis.plot(x, y, color=color, linestyle=line.style, linewidth=1.4, marker=marker, markersize=4, label=name)

    def _paint_cloud(self, cloud: Cloud, color: str, name: str | None, *, most_points: int) -> None:
        """Each point where all clouds have few; the medians of neighbours; their percentiles where there are many."""
        x, y = self._scaled(cloud.points)
        num_in_band = max(_FEWEST_IN_BAND, -(-most_points // _NUM_BANDS))
        num_bands = max(1, len(x) // num_in_band)
        says = f"line: median of {num_in_band:,} {cloud.noun}s"
        middles = np.array([np.median(part) for part in np.array_split(x, num_bands)])
        bands = np.array([np.percentile(part, (5, 50, 95, 100)) for part in np.array_split(y, num_bands)])
        low, middle, high, most = bands.T
        is_line = num_bands > 1
        if self._values.size <= MOST_POINTS:
            self._axis.plot(
                x,
                y,
                linestyle="none",
                marker="o",
                markersize=2.6 if is_line else 4.0,
                markeredgewidth=0,
                color=color,
                alpha=0.4 if is_line else 1.0,
                label=None if is_line else name,
            )
            self._explanations[f"points: each {cloud.noun}"] = None
            if not is_line:
                return
        else:
            self._axis.fill_between(middles, low, high, color=color, alpha=0.2, linewidth=0)
            self._axis.plot(middles, most, color=color, linewidth=0.5, alpha=0.6)
            says += "\nband: 5 % to 95 %\nthin: maximum"
        self._axis.plot(middles, middle, color=color, linewidth=1.5, marker=None if is_line else "o", label=name)
        self._explanations[says] = None

    def _finish_y(self, *, is_empty: bool) -> None:
        panel, axis = self._panel, self._axis
        unit = self._unit.name or panel.unit
        axis.yaxis.set_major_formatter(_with_separators)
        if is_empty:
            axis.set_ylabel(panel.name)
            axis.set_yticks([])
            axis.grid(visible=False)
            axis.text(0.5, 0.5, panel.empty, transform=axis.transAxes, ha="center", va="center")
            return
        axis.set_ylabel(f"{panel.name} ({unit})" if unit else panel.name)
        most = max([float(self._values.max()), *self._paint_levels()])
        if self._is_logarithmic():
            axis.set_yscale("log")
            axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.yaxis.set_major_formatter(_with_separators)
            axis.yaxis.set_minor_formatter(NullFormatter())
            axis.set_ylabel(f"{panel.name}\n({unit + ', ' if unit else ''}logarithmic)")
        elif not panel.may_be_negative:
            axis.set_ylim(0.0, 1.08 * most / self._unit.size or 1.0)

    def _paint_levels(self) -> list[float]:
        """Those that are near the data, and are drawn."""
        near = []
        for level in self._panel.levels:
            if self._panel.may_be_negative or level.value <= FAR * float(self._values.max()):
                near.append(level.value)
                place = level.value / self._unit.size
                self._axis.axhline(place, color=INK, linestyle=level.style, linewidth=1, label=level.name)
            else:
                self._axis.plot([], [], linestyle="none", label=f"{level.name}, far above")
        return near

    def _is_logarithmic(self) -> bool:
        stall = LOGARITHMIC_FROM * float(np.median(self._values))
        return self._panel.is_logarithmic or (self._panel.may_be_logarithmic and self._values.max() > stall > 0)

    def _paint_marks(self) -> None:
        marks = sorted(set(self._panel.marks))
        if marks:
            shown = marks[:: -(-len(marks) // 100)]
            self._axis.plot(
                shown,
                [1.02] * len(shown),
                transform=self._axis.get_xaxis_transform(),
                linestyle="none",
                marker="x",
                markersize=5,
                color=INK,
                clip_on=False,
                label=f"{self._panel.marks_name}: {len(self._panel.marks):,}",
            )


def _name(number: int, name: str, num_series: int) -> str | None:
    """In the legend: the first ones, and how many more there are."""
    if number < MOST_NAMED:
        return label(name)
    return f"and {num_series - MOST_NAMED:,} more" if number == MOST_NAMED else None


def finish_x(axis: Axes, name: str, ticks: Ticks | None) -> None:
    """The horizontal axis below all panels, once they are painted."""
    axis.set_xlabel(name)
    if ticks is None:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10, steps=[1, 2, 5, 10], min_n_ticks=1))
        axis.xaxis.set_major_formatter(_with_separators)
        return
    axis.set_xscale("log", base=2)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xticks(ticks.places, ticks.names)


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure that was drawn; the same figure has the same bytes with the same matplotlib.

    Attributes:
        name: without a suffix.
        png: a file.
        svg: a document.
    """

    name: str
    png: bytes = field(repr=False)
    svg: bytes = field(repr=False)

    @property
    def uri(self) -> str:
        """The drawing within a page."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.svg).decode()}"


def draw(
    name: str, title: str, panels: Sequence[Panel], *, x: str, ticks: Ticks | None = None, row_inches: float = 2.6
) -> Picture:
    """Panels one below the other, with one horizontal axis.

    It is always the same style that is applied, whatever a matplotlibrc says. matplotlib keeps it in a global variable,
    so no two threads may draw at the same time.

    Args:
        name: of the file; letters, digits and hyphens.
        x: what the horizontal axis is; it counts something where it has no ticks of its own.
    """
    with _style():
        figure = Figure(figsize=(10.0, 1.0 + row_inches * len(panels)), layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(label(title, most=_MAX_TITLE_CHARACTERS), x=0.02, horizontalalignment="left", fontsize="medium")
        axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for panel, axis in zip(panels, axes, strict=True):
            Drawing(panel, axis).paint()
        finish_x(axes[-1], x, ticks)
        png, svg = io.BytesIO(), io.BytesIO()
        figure.savefig(png, format="png", dpi=130, metadata={"Software": None})
        figure.set_layout_engine("none")  # it stays as it is; to lay it out takes a third of all
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        return Picture(name, png.getvalue(), svg.getvalue())


@contextmanager
def _style() -> Iterator[None]:
    with matplotlib.rc_context(), warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes in a PNG; an SVG has the reader's fonts.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield
