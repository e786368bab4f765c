"""Meters to an OpenTelemetry collector, where the environment asks for it (`otlp`): a thread reads them now and then.

OpenTelemetry's own instruments are not used beside Prometheus's, which would count everything twice: what a reader of
`/metrics` sees is sent, under the same names.
"""

import asyncio
import os
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kakeya_shared.metrics.meters import Meters
from kakeya_shared.rpc.otlp import GRPC, METRICS, resource

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter

_INTERVAL_MS = 60_000.0  # OpenTelemetry's default
# A service that ends does not wait for a collector that is away.
_LAST_EXPORT_MS = 2_000.0


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
        if METRICS.is_wanted():
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
        from kakeya_shared.rpc.metric_data import metrics_data

        exporter, who = _exporter(), resource(self._service)
        seconds = float(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL") or _INTERVAL_MS) / 1e3
        while not self._is_over.wait(seconds):
            exporter.export(metrics_data(self._meters.read(), who, self._began_ns))
        exporter.export(metrics_data(self._meters.read(), who, self._began_ns), timeout_millis=_LAST_EXPORT_MS)
        exporter.shutdown()


def _exporter() -> "MetricExporter":
    """Either library is loaded only where it is used."""
    options = METRICS.exporter_options()
    if METRICS.protocol == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

        return OTLPMetricExporter(**options)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetricExporter

    return HttpMetricExporter(**options)
