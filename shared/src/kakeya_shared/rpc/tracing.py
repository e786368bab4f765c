"""OpenTelemetry across the hops: W3C trace context in gRPC metadata, exported when the OTEL_ variables ask.

Spans are opened in the server boundary (`rpc_boundary`), in `client_span` here, and in the HTTP shim's. The gRPC
instrumentation of opentelemetry-contrib is not used: its asyncio client interceptors replace a stream's call
object, so it can no longer be cancelled, and leave the span of a cancelled call open.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, Status, StatusCode

from kakeya_shared.rpc.proxies import PAST_PROXY
from kakeya_shared.settings.addresses import is_loopback

Metadata = tuple[tuple[str, str], ...]

# Heartbeats, once a second from every worker, are part of no request; acknowledgements come every few tokens.
_UNTRACED = frozenset({"/kakeya.worker.v1.RegistryService/Heartbeat", "/kakeya.worker.v1.VerifierService/Acknowledge"})

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_tracer = trace.get_tracer("kakeya")


def wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the standard variables ask for an OTLP export of traces."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    if exporter:
        return "otlp" in exporter.split(",")
    return any(environment.get(name) for name in _ENDPOINTS)


def configure(service: str) -> None:
    """Exports this process's spans as `service`, if the environment asks for it; else spans cost nothing.

    Raises:
        ValueError: what it says is not the URL of a collector.
    """
    if not wanted():
        return
    # An operator who names the service in OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES has the last word.
    resource = Resource({"service.name": f"kakeya-{service}"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=Resource.create().merge(resource))
    options: Any = (PAST_PROXY,) if _collector_is_here() else None  # declared to be of texts
    exporter = OTLPSpanExporter(channel_options=options)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


def _collector_is_here() -> bool:
    url = next((given for name in _ENDPOINTS if (given := os.environ.get(name))), "//localhost")
    return is_loopback(urlsplit(url if "//" in url else f"//{url}").hostname or "")


def shut_down() -> None:
    """Sends the spans that still wait. Call it last."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        provider.shutdown()


def rpc_attributes(method: str) -> dict[str, str]:
    """OpenTelemetry's RPC attributes of "/package.Service/Method"."""
    service, _, name = method.removeprefix("/").rpartition("/")
    return {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}


@contextmanager
def server_span(method: str, metadata: Metadata) -> Iterator[Span]:
    """The span of one served call, child of the caller's, current inside; none where there would be too many."""
    if method in _UNTRACED:
        yield INVALID_SPAN
        return
    parent = propagate.extract({key: value for key, value in metadata if isinstance(value, str)})
    with _tracer.start_as_current_span(
        method.removeprefix("/"),
        context=parent,
        kind=SpanKind.SERVER,
        attributes=rpc_attributes(method),
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        yield span


@contextmanager
def client_span(method: str) -> Iterator[Metadata]:
    """The span of one outgoing call, current inside; yields the metadata that carries it."""
    with _tracer.start_as_current_span(
        method.removeprefix("/"),
        kind=SpanKind.CLIENT,
        attributes=rpc_attributes(method),
        record_exception=False,
    ):
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        yield tuple(carrier.items())


def annotate(**attributes: str | int | float) -> None:
    """Adds our attributes to the current span: `kv_live_bytes=1` becomes kakeya.kv_live_bytes."""
    span = trace.get_current_span()
    if span.is_recording():
        span.set_attributes({f"kakeya.{name}": value for name, value in attributes.items()})


def annotate_session(session_id: str) -> None:
    """Marks the current span with its conversation (OpenTelemetry's GenAI conventions)."""
    trace.get_current_span().set_attribute("gen_ai.conversation.id", session_id)


def fail(span: Span, description: str) -> None:
    """Marks a span as failed."""
    span.set_status(Status(StatusCode.ERROR, description))
