"""Sends a program's spans to a collector when the standard OTEL_ variables ask for it.

For programs that have no OpenTelemetry set-up of their own, like the `kakeya` command; an application that
has one needs nothing from here.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kakeya._transport import _proxy
from kakeya.errors import MissingExtra

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


class BadEndpoint(Exception):
    """The collector's address or its protocol is none; the message names the variables."""


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
        BadEndpoint: it asks, and does not say for where, or by a protocol that is not spoken here.
    """
    if not wanted():
        return
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        exporter = _exporter(_first(_PROTOCOLS) or "grpc")
    except ImportError as error:
        raise MissingExtra("the export of traces", "otel") from error
    provider = TracerProvider(resource=Resource.create({"service.name": f"kakeya-{service}"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


def _exporter(protocol: str) -> "SpanExporter":
    if protocol == "grpc":
        return _grpc_exporter()
    if protocol == "http/protobuf":
        return _http_exporter()
    raise BadEndpoint(f"{' or '.join(_PROTOCOLS)} is {protocol!r}, and can be grpc or http/protobuf")


def _grpc_exporter() -> "SpanExporter":
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    options: Any = tuple(_proxy.options(_endpoint("localhost:4317"))) or None  # declared to be of texts
    try:
        return OTLPSpanExporter(channel_options=options)
    except ValueError as error:
        raise BadEndpoint(f"{' or '.join(_ENDPOINTS)} is not a URL: {error}") from error


def _http_exporter() -> "SpanExporter":
    import requests
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    url = _first(_ENDPOINTS) or "http://localhost:4318"
    if not url.startswith(("http://", "https://")):
        raise BadEndpoint(f"{' or '.join(_ENDPOINTS)} is not a URL of http/protobuf: {url!r}")
    session = requests.Session()
    session.trust_env = not _proxy.options(_endpoint("localhost:4318"))  # else by way of the environment's proxies
    return OTLPSpanExporter(session=session)


def _endpoint(default: str) -> str:
    """HOST:PORT of the collector, which the variables may give as a URL."""
    return (_first(_ENDPOINTS) or default).rpartition("://")[2].partition("/")[0]


def _first(names: tuple[str, ...]) -> str:
    """The value of the first variable that is set, "" for none."""
    return next((given for name in names if (given := os.environ.get(name))), "")
