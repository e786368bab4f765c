"""Sends a process's spans to an OpenTelemetry collector, where the environment asks for it (`otlp`).

OpenTelemetry's SDK and its exporters are loaded only there: they are a tenth of what a service takes to start.
"""

from typing import TYPE_CHECKING

from opentelemetry import trace

from kakeya_shared.rpc.otlp import GRPC, TRACES, resource

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter


def configure(service: str) -> None:
    """Exports this process's spans as service kakeya-`service`, if the environment asks for it; else they cost nothing.

    Raises:
        ValueError: as of `Signal.exporter_options`.
    """
    if not TRACES.is_wanted():
        return
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=resource(service))
    provider.add_span_processor(BatchSpanProcessor(_exporter()))
    trace.set_tracer_provider(provider)


def shut_down() -> None:
    """Sends the spans that still wait. Call it last."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):  # nobody has configured any
        return
    from opentelemetry.sdk.trace import TracerProvider

    if isinstance(provider, TracerProvider):
        provider.shutdown()


def _exporter() -> "SpanExporter":
    options = TRACES.exporter_options()
    if TRACES.protocol == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(**options)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter

    return HttpSpanExporter(**options)
