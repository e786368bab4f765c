"""Sends a program's spans to a collector when the standard OTEL_ variables ask for it.

For programs that have no OpenTelemetry set-up of their own, like the `kakeya` command; an application that
has one needs nothing from here.
"""

import os
from collections.abc import Mapping
from typing import Any

from kakeya._transport import _proxy
from kakeya.errors import MissingExtra

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class BadEndpoint(Exception):
    """The collector's address is none; the message names the variables."""


def wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the standard variables ask for an OTLP export of traces."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    if exporter:
        return "otlp" in exporter.split(",")
    return any(environment.get(name) for name in _ENDPOINTS)


def configure(service: str) -> None:
    """Exports this process's spans as service kakeya-`service`, if the environment asks; sent at exit at the latest.

    Raises:
        MissingExtra: it asks, and the extra [otel] is not installed.
        BadEndpoint: it asks, and does not say for where.
    """
    if not wanted():
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise MissingExtra("the export of traces", "otel") from error
    options: Any = tuple(_proxy.options(_endpoint())) or None  # declared to be of texts
    try:
        exporter = OTLPSpanExporter(channel_options=options)
    except ValueError as error:
        raise BadEndpoint(f"{' or '.join(_ENDPOINTS)} is not a URL: {error}") from error
    provider = TracerProvider(resource=Resource.create({"service.name": f"kakeya-{service}"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


def _endpoint() -> str:
    """HOST:PORT of the collector, which the variables may give as a URL."""
    url = next((given for name in _ENDPOINTS if (given := os.environ.get(name))), "localhost:4317")
    return url.rpartition("://")[2].partition("/")[0]
