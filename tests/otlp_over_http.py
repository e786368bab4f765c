"""A real OTLP receiver over http/protobuf: the collector's /v1/traces and /v1/metrics, keeping what it is sent."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf.message import Message
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_KINDS: dict[str, type[Message]] = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


class HttpCollector(ThreadingHTTPServer):
    """Listens on a free port of loopback.

    Attributes:
        received: paths and requests.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[tuple[str, Message]] = []

    @property
    def environment(self) -> dict[str, str]:
        """With which a process exports its spans here."""
        url = f"http://127.0.0.1:{self.server_port}"
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}

    @property
    def names(self) -> list[str]:
        """Of the spans."""
        spans = [sent for _, sent in self.received if isinstance(sent, ExportTraceServiceRequest)]
        of_scopes = [scope for sent in spans for each in sent.resource_spans for scope in each.scope_spans]
        return [span.name for scope in of_scopes for span in scope.spans]

    @property
    def metric_names(self) -> list[str]:
        metrics = [sent for _, sent in self.received if isinstance(sent, ExportMetricsServiceRequest)]
        of_scopes = [scope for sent in metrics for each in sent.resource_metrics for scope in each.scope_metrics]
        return [metric.name for scope in of_scopes for metric in scope.metrics]


class _Handler(BaseHTTPRequestHandler):
    server: HttpCollector

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"]))
        self.server.received.append((self.path, _KINDS[self.path].FromString(content)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the console."""


@contextmanager
def http_collector() -> Iterator[HttpCollector]:
    """One that runs."""
    with HttpCollector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
