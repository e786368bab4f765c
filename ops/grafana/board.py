"""A dashboard as what it asks and what that means; Grafana's JSON of it is made by Grafana's own SDK."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models

Unit = Literal["short", "bytes", "s", "percentunit", "ops", "reqps"]
"""Grafana's ids: a count, bytes, seconds, a part of one, a number a second, requests a second."""

_SOURCE = models.DataSourceRef(type_val="prometheus", uid="${source}")
_WIDTHS = {"stat": 4, "lines": 8}
_HEIGHTS = {"stat": 4, "lines": 8}
_TAG = "kakeya"


@dataclass(frozen=True)
class Query:
    """What Prometheus is asked.

    Attributes:
        expr: PromQL.
        legend: name of each line, with labels as {{label}}.
    """

    expr: str
    legend: str = ""

    @property
    def has_exemplars(self) -> bool:
        """Whether dots that lead to traces may be drawn with its lines: those of a distribution's values."""
        return self.expr.startswith("histogram_quantile(")


@dataclass(frozen=True)
class Panel:
    """One picture.

    Attributes:
        meaning: what it shows and what to look for, for its help.
        kind: lines over time, or one number.
    """

    title: str
    meaning: str
    queries: Sequence[Query]
    unit: Unit = "short"
    kind: Literal["lines", "stat"] = "lines"
    is_stacked: bool = False


@dataclass(frozen=True)
class Board:
    """One dashboard.

    Attributes:
        uid: in its address; never changes.
        rows: panels under their titles.
    """

    uid: str
    title: str
    meaning: str
    rows: dict[str, Sequence[Panel]] = field(default_factory=dict)

    @property
    def panels(self) -> list[Panel]:
        return [panel for panels in self.rows.values() for panel in panels]


def document(board: Board) -> str:
    """The dashboard as Grafana imports it."""
    made = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.meaning)
        .tags([_TAG])
        .refresh("10s")
        .time("now-1h", "now")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("source").label("Prometheus").type("prometheus"))
        .link(
            dashboard.DashboardLink("Kakeya").type(models.DashboardLinkType.DASHBOARDS).tags([_TAG]).as_dropdown(True)
        )
    )
    for title, panels in board.rows.items():
        made = made.with_row(dashboard.Row(title))
        for panel in panels:
            made = made.with_panel(_built(panel))
    return json.dumps(made.build(), cls=JSONEncoder, sort_keys=True, indent=2) + "\n"


def _built(panel: Panel) -> timeseries.Panel | stat.Panel:
    built: timeseries.Panel | stat.Panel = _lines(panel) if panel.kind == "lines" else stat.Panel()
    built = (
        built.title(panel.title)
        .description(panel.meaning)
        .unit(panel.unit)
        .datasource(_SOURCE)
        .span(_WIDTHS[panel.kind])
        .height(_HEIGHTS[panel.kind])
        .no_value("no data")
    )
    for number, query in enumerate(panel.queries):
        built = built.with_target(
            prometheus.Dataquery()
            .expr(query.expr)
            .legend_format(query.legend or panel.title)
            .exemplar(query.has_exemplars)
            .ref_id(chr(ord("A") + number))
        )
    return built


def _lines(panel: Panel) -> timeseries.Panel:
    lines = timeseries.Panel().min(0).fill_opacity(20 if panel.is_stacked else 5).line_width(1)
    if panel.is_stacked:
        lines = lines.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
    return lines.legend(
        common.VizLegendOptions()
        .display_mode(common_models.LegendDisplayMode.LIST)
        .placement(common_models.LegendPlacement.BOTTOM)
        .show_legend(True)
    )
