"""Figures as pictures, without a display: declared as panels of series, drawn by matplotlib."""

import base64
import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from kakeya_bench.report.drawing import Drawing, finish_x, label
from kakeya_bench.report.panels import Panel, Ticks

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
