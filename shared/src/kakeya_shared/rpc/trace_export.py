"""Where a process's spans go: to an OpenTelemetry collector, by the standard OTEL_ variables.

They say whether, where to, by which protocol, how many (OTEL_TRACES_SAMPLER) and in which batches (OTEL_BSP_*); what
this module does not read, OpenTelemetry's own exporters and its SDK do.
"""

import os
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from opentelemetry import trace
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from kakeya_shared.rpc.proxies import PAST_PROXY
from kakeya_shared.settings.addresses import is_loopback

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_GRPC, _HTTP = "grpc", "http/protobuf"


def wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the standard variables ask for an OTLP export of traces."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    if exporter:
        return "otlp" in exporter.split(",")
    return any(environment.get(name) for name in _ENDPOINTS)


def configure(service: str) -> None:
    """Exports this process's spans as service kakeya-`service`, if the environment asks for it; else they cost nothing.

    Raises:
        ValueError: what it says is not the URL of a collector, or no protocol of OTLP that is spoken here.
    """
    if not wanted():
        return
    named = {"service.name": f"kakeya-{service}", "service.instance.id": str(uuid.uuid4())}
    # An operator who names them in OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES has the last word.
    resource = Resource(named).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=Resource.create().merge(resource))
    provider.add_span_processor(BatchSpanProcessor(_exporter(_first(_PROTOCOLS) or _GRPC)))
    trace.set_tracer_provider(provider)


def shut_down() -> None:
    """Sends the spans that still wait. Call it last."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        provider.shutdown()


def _exporter(protocol: str) -> SpanExporter:
    """Raises ValueError. Either library is loaded only where it is used."""
    if protocol == _GRPC:
        return _grpc_exporter()
    if protocol == _HTTP:
        return _http_exporter()
    raise ValueError(f"{' or '.join(_PROTOCOLS)} is {protocol!r}, and can be {_GRPC} or {_HTTP}")


def _grpc_exporter() -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    options: Any = (PAST_PROXY,) if _is_here(_collector()) else None  # declared to be of texts
    return OTLPSpanExporter(channel_options=options)


def _http_exporter() -> SpanExporter:
    import requests
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    collector = _collector()
    if collector.scheme not in ("http", "https"):
        raise ValueError(f"{' or '.join(_ENDPOINTS)} is not a URL of {_HTTP}: {_first(_ENDPOINTS)!r}")
    session = requests.Session()
    session.trust_env = not _is_here(collector)  # else by way of the proxies of the environment
    return OTLPSpanExporter(session=session)


def _collector() -> SplitResult:
    """Raises ValueError."""
    url = _first(_ENDPOINTS) or "http://localhost"
    try:
        return urlsplit(url if "//" in url else f"//{url}")
    except ValueError as error:
        raise ValueError(f"{' or '.join(_ENDPOINTS)} is not a URL: {error}") from error


def _is_here(collector: SplitResult) -> bool:
    return is_loopback(collector.hostname or "")


def _first(names: tuple[str, ...]) -> str:
    """The value of the first variable that is set, "" for none."""
    return next((given for name in names if (given := os.environ.get(name))), "")
