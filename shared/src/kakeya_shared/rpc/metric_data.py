"""A reading of Prometheus's meters as OpenTelemetry's SDK has it; loaded only where metrics are exported."""

import math
import time
from collections.abc import Iterable, Iterator
from typing import Any

from opentelemetry.sdk.metrics import export
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import Metric
from prometheus_client.samples import Sample

_UNITS = {"seconds": "s", "bytes": "By", "ratio": "1"}


def metrics_data(families: Iterable[Metric], resource: Resource, began_ns: int) -> export.MetricsData:
    """Of meters that have counted since `began_ns`, Unix time in nanoseconds."""
    now_ns = time.time_ns()
    metrics = [
        export.Metric(family.name, family.documentation, _UNITS.get(family.unit, ""), data)
        for family in families
        if (data := _data(family, began_ns, now_ns)) is not None
    ]
    scope = export.ScopeMetrics(InstrumentationScope("kakeya"), metrics, "")
    return export.MetricsData([export.ResourceMetrics(resource, [scope], "")])


def _data(family: Metric, began_ns: int, now_ns: int) -> export.Sum | export.Gauge | export.Histogram | None:
    """None where nothing was measured yet."""
    cumulative = export.AggregationTemporality.CUMULATIVE
    if family.type == "histogram":
        points = [*_histogram_points(family, began_ns, now_ns)]
        return export.Histogram(points, cumulative) if points else None
    numbers = [
        export.NumberDataPoint(sample.labels, began_ns, now_ns, sample.value)
        for sample in family.samples
        if not math.isnan(sample.value)
    ]
    if not numbers:
        return None
    return export.Sum(numbers, cumulative, is_monotonic=True) if family.type == "counter" else export.Gauge(numbers)


def _histogram_points(family: Metric, began_ns: int, now_ns: int) -> Iterator[export.HistogramDataPoint]:
    """One for each set of labels. Prometheus's buckets have those below in them, OpenTelemetry's do not."""
    by_labels: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in family.samples:
        labels = tuple((name, value) for name, value in sample.labels.items() if name != "le")
        by_labels.setdefault(labels, []).append(sample)
    for labels, samples in by_labels.items():
        buckets = [sample for sample in samples if sample.name.endswith("_bucket")]
        counts = [int(sample.value) for sample in buckets]
        nothing: Any = None  # the client keeps no least and no greatest
        yield export.HistogramDataPoint(
            attributes=dict(labels),
            start_time_unix_nano=began_ns,
            time_unix_nano=now_ns,
            count=counts[-1],
            sum=next(sample.value for sample in samples if sample.name.endswith("_sum")),
            bucket_counts=[count - below for below, count in zip([0, *counts], counts, strict=False)],
            explicit_bounds=[float(sample.labels["le"]) for sample in buckets[:-1]],
            min=nothing,
            max=nothing,
        )
