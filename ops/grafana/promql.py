"""What panels ask again and again, in PromQL."""

from collections.abc import Sequence

from ops.grafana.board import Query

WINDOW = "$__rate_interval"
"""Grafana's own: four scrapes at least."""


def rate(metric: str, *, by: str = "", where: str = "") -> str:
    """A second, over all processes.

    Args:
        by: labels that are told apart.
        where: a selector with its braces.
    """
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate({metric}{where}[{WINDOW}]))"


def quantile(part: float, histogram: str) -> str:
    return f"histogram_quantile({part}, sum by (le) (rate({histogram}_bucket[{WINDOW}])))"


def quantiles(histogram: str) -> Sequence[Query]:
    """Half of all were as fast as this, 95 and 99 of a hundred."""
    return [Query(quantile(part, histogram), f"p{part * 100:g}") for part in (0.5, 0.95, 0.99)]


def mean(histogram: str, *, by: str = "") -> str:
    return f"{rate(f'{histogram}_sum', by=by)} / {rate(f'{histogram}_count', by=by)}"
