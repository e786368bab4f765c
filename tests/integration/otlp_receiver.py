"""A real OTLP receiver: the collector's trace service over gRPC, keeping the spans it is sent."""

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

Value = str | int | float | tuple[str, ...]


@dataclass(frozen=True)
class ReceivedSpan:
    """What the tests ask of a span.

    Attributes:
        instance: of the service; each process is one.
        links: ids of the spans that it has links to.
    """

    service: str
    instance: str
    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Value]
    is_error: bool
    links: tuple[str, ...]
    span: Span

    @property
    def written(self) -> str:
        """All of it, events and the status's message included."""
        return str(self.span)


@dataclass
class OtlpReceiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Collects spans from any number of processes."""

    address: str = ""
    metrics: "OtlpMetrics" = field(default_factory=lambda: OtlpMetrics())
    spans: list[ReceivedSpan] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def Export(
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        for resource_spans in request.resource_spans:
            resource = _attributes(resource_spans.resource.attributes)
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans:
                    received = ReceivedSpan(
                        service=str(resource["service.name"]),
                        instance=str(resource.get("service.instance.id", "")),
                        name=span.name,
                        kind=span.kind,
                        trace_id=span.trace_id.hex(),
                        span_id=span.span_id.hex(),
                        parent_id=span.parent_span_id.hex(),
                        attributes=_attributes(span.attributes),
                        is_error=span.status.code == 2,
                        links=tuple(link.span_id.hex() for link in span.links),
                        span=span,
                    )
                    with self._lock:
                        self.spans.append(received)
        return trace_service_pb2.ExportTraceServiceResponse()

    def environment(self) -> dict[str, str]:
        """With which a process exports its spans here, at once."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{self.address}",
            "OTEL_EXPORTER_OTLP_INSECURE": "true",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }

    def trace_ids(self) -> set[str]:
        with self._lock:
            return {span.trace_id for span in self.spans}

    def named(self, name: str) -> list[ReceivedSpan]:
        """Spans of one name, in the order of their arrival."""
        with self._lock:
            return [span for span in self.spans if span.name == name]


@dataclass
class OtlpMetrics(metrics_service_pb2_grpc.MetricsServiceServicer):
    """Keeps the latest of each metric, by service and name."""

    latest: dict[tuple[str, str], Metric] = field(default_factory=dict)

    def Export(
        self, request: metrics_service_pb2.ExportMetricsServiceRequest, context: grpc.ServicerContext
    ) -> metrics_service_pb2.ExportMetricsServiceResponse:
        for resource_metrics in request.resource_metrics:
            service = str(_attributes(resource_metrics.resource.attributes)["service.name"])
            for scope_metrics in resource_metrics.scope_metrics:
                self.latest |= {(service, metric.name): metric for metric in scope_metrics.metrics}
        return metrics_service_pb2.ExportMetricsServiceResponse()


@contextmanager
def otlp_receiver(bind: str = "127.0.0.1:0") -> Iterator[OtlpReceiver]:
    """A listening receiver; on a free port of loopback unless told otherwise."""
    receiver = OtlpReceiver()
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(receiver, server)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(receiver.metrics, server)
    receiver.address = f"127.0.0.1:{server.add_insecure_port(bind)}"
    server.start()
    try:
        yield receiver
    finally:
        server.stop(grace=None).wait()


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Value]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Value:
    if value.HasField("array_value"):
        return tuple(each.string_value for each in value.array_value.values)
    single: str | int | float = getattr(value, str(value.WhichOneof("value")))
    return single
