"""The report of `make bench-engine` as a picture."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kakeya.bench import pictures
from kakeya.bench.pictures import COLORS, INK, Picture
from tests.benchmarks.engine_contestants import LLAMA

_WIDTH = 0.8  # of a case's bars, in cases


def draw(document: Mapping[str, Any]) -> Picture:
    """How fast everybody is beside llama.cpp, a panel a window; the bounds are lines over int8's bars."""
    plan = document["plan"]

    def paint(figure: Figure) -> None:
        figure.suptitle("How many times as fast as llama.cpp Q8_0; over the bars: milliseconds")
        panels = figure.subplots(len(plan["windows"]), 1, squeeze=False)[:, 0]
        for panel, window in zip(panels, plan["windows"], strict=True):
            _paint_window(panel, document, window)
        pictures.legend(panels[0])

    return pictures.draw("engine", 11.0, 3.6 * len(plan["windows"]), paint)


def _paint_window(panel: Axes, document: Mapping[str, Any], window: int) -> None:
    cases = [case for case in document["cases"] if case["window"] == window]
    contestants = list(document["loading"])
    width = _WIDTH / len(contestants)
    for number, name in enumerate(contestants):
        left = -_WIDTH / 2 + width * number
        speeds = [case["seconds"][LLAMA] / case["seconds"][name] for case in cases]
        bars = panel.bar(
            [place + left for place in range(len(cases))], speeds, width, align="edge",
            color=COLORS[number], edgecolor=INK, linewidth=0.4, label=name,
        )  # fmt: skip
        milliseconds = [f"{case['seconds'][name] * 1e3:,.1f}" for case in cases]
        panel.bar_label(bars, milliseconds, fontsize=6, rotation=90, padding=3)
    _paint_bounds(panel, cases, document["verdicts"], width)
    panel.set_title(f"each token sees {window:,} keys")
    panel.set_ylabel("llama.cpp = 1")
    panel.set_xticks(range(len(cases)), [f"{case['kind']} {case['number']}" for case in cases])
    panel.grid(visible=False, axis="x")
    panel.axhline(1.0, color=INK, linewidth=0.8)
    panel.margins(y=0.2)


def _paint_bounds(panel: Axes, cases: list[Any], verdicts: list[Any], width: float) -> None:
    """Over the first contestant's bars, of whom they speak."""
    bounds = {verdict["gate"]: verdict["figures"]["bound"] for verdict in verdicts}
    bounded = [(place, bounds[case["name"]]) for place, case in enumerate(cases) if case["name"] in bounds]
    panel.hlines(
        [bound for _, bound in bounded],
        [place - _WIDTH / 2 for place, _ in bounded],
        [place - _WIDTH / 2 + width for place, _ in bounded],
        colors=INK, linewidth=2.5, label="bound of int8",
    )  # fmt: skip
