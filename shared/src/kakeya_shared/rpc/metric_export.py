"""Meters to an OpenTelemetry collector, by the standard OTEL_ variables: a thread reads them now and then.

OpenTelemetry's own instruments are not used beside Prometheus's, which would count everything twice: what a reader of
`/metrics` sees is sent, under the same names.
"""

import asyncio
import math
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import structlog
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import export
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import Metric
from prometheus_client.samples import Sample

from kakeya_shared.metrics.meters import Meters
from kakeya_shared.rpc.proxies import PAST_PROXY
from kakeya_shared.settings.addresses import is_loopback

_log = structlog.get_logger()

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_INTERVAL_MS = 60_000.0  # OpenTelemetry's default
# A service that ends does not wait for a collector that is away.
_LAST_EXPORT_MS = 2_000.0
_UNITS = {"seconds": "s", "bytes": "By", "ratio": "1"}


def wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the standard variables ask for an OTLP export of metrics."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environment.get("OTEL_METRICS_EXPORTER", "")
    if exporter:
        return "otlp" in exporter.split(",")
    return any(environment.get(name) for name in _ENDPOINTS)


class MetricExport:
    """Sends meters until it is left, and once more then; use as a context manager.

    Args:
        service: they are sent as those of service kakeya-`service`.
    """

    def __init__(self, meters: Meters, service: str) -> None:
        self._meters = meters
        self._service = service
        self._began_ns = time.time_ns()
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    async def __aenter__(self) -> Self:
        protocol = next((given for name in _PROTOCOLS if (given := os.environ.get(name))), "grpc")
        if wanted() and protocol != "grpc":
            _log.warning("metrics are sent over gRPC only, so they are not sent", protocol=protocol)
        elif wanted():
            self._thread = threading.Thread(target=self._run, name="metric export", daemon=True)
            self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        exporter, resource = _exporter(), _resource(self._service)
        seconds = float(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL") or _INTERVAL_MS) / 1e3
        while not self._is_over.wait(seconds):
            exporter.export(_sent(self._meters.read(), resource, self._began_ns))
        exporter.export(_sent(self._meters.read(), resource, self._began_ns), timeout_millis=_LAST_EXPORT_MS)
        exporter.shutdown()


def _exporter() -> OTLPMetricExporter:
    url = next((given for name in _ENDPOINTS if (given := os.environ.get(name))), "//localhost")
    is_here = is_loopback(urlsplit(url if "//" in url else f"//{url}").hostname or "")
    options: Any = (PAST_PROXY,) if is_here else None  # declared to be of texts
    return OTLPMetricExporter(channel_options=options)


def _resource(service: str) -> Resource:
    """An operator who names the service in OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES has the last word."""
    return Resource.create().merge(
        Resource({"service.name": f"kakeya-{service}"}).merge(OTELResourceDetector().detect())
    )


def _sent(families: Iterable[Metric], resource: Resource, began_ns: int) -> export.MetricsData:
    """A reading as OpenTelemetry's SDK has it."""
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
