"""The result as pictures, without a display."""

import io
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from kakeya_worker.quality.configuration import Configuration
from kakeya_worker.quality.perplexity import Perplexity
from kakeya_worker.quality.recall import Recall
from kakeya_worker.quality.result import Result

_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # told apart by all eyes (Okabe and Ito)
_MARKS = ("o", "s", "^", "D", "v", "P")
_PANEL_INCHES = (6.4, 4.2)


def recall_picture(result: Result) -> bytes:
    """A panel for facts that the user tells and one for those of the system message; a row a policy."""
    policies = result.plan.options.policies
    figure, panels = _panels(len(policies), 2, f"{result.model_name}: recall against distance")
    for row, policy in zip(panels, policies, strict=True):
        for panel, told_by in zip(row, ("user", "system"), strict=True):
            _recall_panel(panel, result, policy, told_by)
    return _png(figure)


def perplexity_picture(result: Result) -> bytes:
    """A panel for all tokens and one for the assistant's; a row a policy."""
    policies = result.plan.options.policies
    figure, panels = _panels(len(policies), 2, f"{result.model_name}: perplexity by position")
    for row, policy in zip(panels, policies, strict=True):
        for panel, is_of_answers in zip(row, (False, True), strict=True):
            _perplexity_panel(panel, result, policy, is_of_answers=is_of_answers)
    return _png(figure)


def _panels(num_rows: int, num_columns: int, title: str) -> tuple[Figure, list[list[Axes]]]:
    width, height = _PANEL_INCHES
    figure = Figure(figsize=(width * num_columns, height * num_rows + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    panels = figure.subplots(num_rows, num_columns, squeeze=False)
    return figure, [list(row) for row in panels]


def _recall_panel(panel: Axes, result: Result, policy: str, told_by: str) -> None:
    weights = result.plan.options.weights[0]
    for number, capacity in enumerate(_capacities(result)):
        panel.axvline(capacity, color=_COLORS[number % len(_COLORS)], linestyle=":", linewidth=1)
    for each in result.recall:
        if (each.configuration.weights, each.configuration.policy, each.told_by) == (weights, policy, told_by):
            _recall_line(panel, each, result)
    panel.set_xscale("log", base=2)
    panel.xaxis.set_major_formatter(_number)
    panel.set_ylim(-0.03, 1.03)
    panel.set_xlabel("distance in tokens (dotted: S+W)")
    panel.set_ylabel("recalled")
    panel.set_title({"user": "told by the user", "system": "in the system message"}[told_by] + f", {weights} {policy}")
    _legend(panel)


def _recall_line(panel: Axes, each: Recall, result: Result) -> None:
    points = [(at.distance, at.recalled.value, at.recalled.interval) for at in each.by_distance]
    known = [(distance, share, interval) for distance, share, interval in points if share is not None]
    shares = [share for _, share, _ in known]
    capacity = each.configuration.capacity
    is_plain = not each.is_pinned and each.configuration.sink != result.plan.most_sinks
    label = f"pinned, S+W = {capacity}" if each.is_pinned else _label(each.configuration)
    color = _capacities(result).index(capacity) % len(_COLORS)
    panel.errorbar(
        [distance for distance, _, _ in known],
        shares,
        yerr=[
            [max(0.0, share - low) for _, share, (low, _) in known],
            [max(0.0, high - share) for _, share, (_, high) in known],
        ],
        label=label,
        color=_COLORS[color],
        marker="*" if each.is_pinned else _MARKS[color],
        markersize=8 if each.is_pinned else 5,
        linestyle="-." if each.is_pinned else "--" if is_plain else "-",
        markerfacecolor="white" if is_plain else None,
        capsize=2,
        linewidth=1.3,
        elinewidth=0.6,
    )


def _perplexity_panel(panel: Axes, result: Result, policy: str, *, is_of_answers: bool) -> None:
    weights = result.plan.options.weights[0]
    for number, capacity in enumerate(_capacities(result)):
        panel.axvline(capacity, color=_COLORS[number % len(_COLORS)], linestyle=":", linewidth=1)
    for each in result.perplexity:
        if (each.configuration.weights, each.configuration.policy) == (weights, policy):
            color = _capacities(result).index(each.configuration.capacity) % len(_COLORS)
            is_plain = each.configuration.sink != result.plan.most_sinks
            positions, values = _curve(each.curve, is_of_answers=is_of_answers)
            panel.plot(
                positions, values, label=_label(each.configuration), color=_COLORS[color], marker=_MARKS[color],
                linestyle="--" if is_plain else "-", markerfacecolor="white" if is_plain else None, markersize=4,
            )  # fmt: skip
    positions, values = _curve(result.found[weights].full_attention, is_of_answers=is_of_answers)
    panel.plot(positions, values, label="full attention", color="black", linewidth=2, alpha=0.6)
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(_number)
    panel.yaxis.set_minor_formatter(_number)  # less than a power of ten has minor ticks only
    panel.set_xlabel("position in tokens (dotted: S+W)")
    panel.set_ylabel("perplexity")
    of = "tokens of answers" if is_of_answers else "all tokens"
    panel.set_title(f"{of}, {weights} {policy}")
    _legend(panel)


def _number(value: float, _: float) -> str:
    """The label of a tick, which a logarithmic axis would write as a power."""
    return f"{value:g}"


def _curve(curve: Sequence[Perplexity], *, is_of_answers: bool) -> tuple[list[float], list[float]]:
    """Middles of the intervals and their values."""
    points = [((each.start + each.stop) / 2, each.of_answers if is_of_answers else each.value) for each in curve]
    known = [(position, value) for position, value in points if value is not None]
    return [position for position, _ in known], [value for _, value in known]


def _capacities(result: Result) -> list[int]:
    return [result.plan.most_sinks + window for window in result.plan.windows]


def _label(configuration: Configuration) -> str:
    return f"S = {configuration.sink}, W = {configuration.window}"


def _legend(panel: Axes) -> None:
    if panel.get_legend_handles_labels()[0]:
        panel.legend(fontsize=8)
    panel.grid(alpha=0.25)


def _png(figure: Figure) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    return content.getvalue()
