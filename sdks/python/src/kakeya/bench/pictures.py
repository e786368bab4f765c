"""Figures as pictures, without a display: PNGs for themselves and SVGs for pages."""

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from kakeya.bench.inline_svg import inline
from kakeya.bench.percentile import median

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Told apart by all eyes (Okabe and Ito 2008). On dark pages they are lighter."""
INK = "#1b1b1d"
"""Of everything that is no data. In a page it is the page's own colour of text."""
LOGARITHMIC_FROM = 20
"""An axis is logarithmic where the longest duration is so many times the median: else one stall flattens all others."""
MAX_LABEL_CHARACTERS = 40

_FONT = "DejaVu Sans"  # comes with matplotlib
_PAGE_NAMES = {
    INK: "currentColor",
    f"'{_FONT}'": "sans-serif",
    **{color: f"var(--series-{number}, {color})" for number, color in enumerate(COLORS)},
}
_STYLE: dict[Any, Any] = {  # matplotlib 3.11 has a type for these names, 3.10 has none
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": "medium",
    "axes.xmargin": 0.02,
    "font.family": _FONT,
    "font.size": 9,
    "grid.alpha": 0.35,
    "legend.fontsize": "small",
    "legend.frameon": False,
    "legend.title_fontsize": "small",
    "svg.fonttype": "none",
    "svg.hashsalt": "kakeya",
    "text.color": INK,
    "text.parse_math": False,  # the name of a model may have a dollar
    "xtick.color": INK,
    "ytick.color": INK,
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure that was drawn; the same figure has the same bytes with the same matplotlib.

    Attributes:
        name: without a suffix.
        png: a file, on white.
        svg: an `<svg>` element for a page, without a background.
    """

    name: str
    png: bytes
    svg: str


def draw(name: str, width_inches: float, height_inches: float, paint: Callable[[Figure], None]) -> Picture:
    """A picture of what `paint` puts on an empty figure.

    It is always the same style that is applied, whatever a matplotlibrc says. matplotlib keeps it in a global variable,
    so no two threads may draw at the same time.

    Args:
        name: letters, digits and hyphens; no two pictures in a page have the same one.
    """
    with _style():
        figure = Figure(figsize=(width_inches, height_inches), layout="constrained")
        FigureCanvasAgg(figure)
        paint(figure)
        return Picture(name, _png(figure), _svg(figure, name))


def rows(figure: Figure, num_rows: int) -> list[Axes]:
    """Panels one below the other, with one horizontal axis."""
    panels = figure.subplots(num_rows, 1, sharex=True, squeeze=False)
    return [row[0] for row in panels]


def label(text: str) -> str:
    """Foreign text, e.g. the name of a worker, as a short line that can be drawn."""
    line = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
    return line if len(line) <= MAX_LABEL_CHARACTERS else f"{line[: MAX_LABEL_CHARACTERS - 1]}…"


def legend(panel: Axes, title: str = "") -> None:
    """Names what has a label, to the right of the data."""
    if panel.get_legend_handles_labels()[0]:
        panel.legend(
            loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, title=title or None, alignment="left"
        )


def count_axis(panel: Axes, name: str) -> None:
    """The horizontal axis counts something: turns, tokens."""
    panel.set_xlabel(name)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10, steps=[1, 2, 5, 10], min_n_ticks=1))
    panel.xaxis.set_major_formatter(_with_separators)


def value_axis(panel: Axes, name: str, unit: str, values: Sequence[float]) -> None:
    """The vertical axis of values that are not negative: from zero on.

    Args:
        values: in that unit; without any the axis has no numbers.
    """
    panel.set_ylabel(f"{name} ({unit})" if values else name)
    panel.yaxis.set_major_formatter(_with_separators)
    if not values:
        panel.set_yticks([])
    elif max(values) > 0:
        panel.set_ylim(0.0, 1.08 * max(values))


def duration_axis(panel: Axes, name: str, unit: str, durations: Sequence[float]) -> None:
    """As `value_axis`, but logarithmic, and it says so, where few durations are far longer than the others."""
    value_axis(panel, name, unit, durations)
    if durations and max(durations) > LOGARITHMIC_FROM * median(durations) > 0:
        panel.set_yscale("log")
        panel.set_ylim(*_around([duration for duration in durations if duration > 0]))
        panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        panel.yaxis.set_major_formatter(_with_separators)
        panel.set_ylabel(f"{name}\n({unit}, logarithmic)")


def _around(values: Sequence[float]) -> tuple[float, float]:
    return min(values) / 1.3, max(values) * 1.3


def say(panel: Axes, text: str) -> None:
    """Words in place of data."""
    panel.grid(visible=False)
    panel.text(0.5, 0.5, text, transform=panel.transAxes, horizontalalignment="center", verticalalignment="center")


_with_separators = FuncFormatter(lambda value, _: f"{value:,.10g}")


@contextmanager
def _style() -> Iterator[None]:
    with matplotlib.rc_context(), warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes in a PNG; the page has the reader's fonts.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def _png(figure: Figure) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=130, metadata={"Software": None})
    figure.set_layout_engine("none")  # what was laid out stays where it is: both have the same layout, found once
    return content.getvalue()


def _svg(figure: Figure, name: str) -> str:
    content = io.StringIO()
    figure.savefig(content, format="svg", transparent=True)
    return inline(content.getvalue(), prefix=name, names=_PAGE_NAMES)
