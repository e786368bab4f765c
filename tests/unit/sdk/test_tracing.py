"""When OpenTelemetry is loaded, and the export that a program asks for by environment."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import opentelemetry.trace
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from kakeya import Client, MissingExtra, tracing
from tests.otlp_over_http import http_collector
from tests.refusing_proxy import refusing_proxy

LOADS_NOTHING = """
import sys, kakeya, kakeya.cli.commands.chat
kakeya.Client("localhost:1").close()
loaded = {name.split(".")[0] for name in sys.modules}
assert not loaded & {"opentelemetry", "transformers", "tokenizers", "torch", "kakeya_shared"}, loaded
"""


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """An OTLP receiver."""

    def __init__(self) -> None:
        self.resource_spans: list[Any] = []

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.resource_spans += request.resource_spans
        return trace_service_pb2.ExportTraceServiceResponse()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    yield collector
    server.stop(0).wait()


def test_nothing_heavy_is_loaded_unasked() -> None:
    subprocess.run([sys.executable, "-c", LOADS_NOTHING], check=True, timeout=120)


def test_asking_for_spans_without_the_extra_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kakeya._spans._otel", None)
    with pytest.raises(MissingExtra, match=r"tracing needs an extra; install it with: pip install 'kakeya\[otel\]'"):
        Client(tracing=True)


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4317"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}, False),
    ],
)
def test_the_standard_variables_decide(environment: dict[str, str], wanted: bool) -> None:
    assert tracing.wanted(environment) is wanted


def test_spans_reach_a_collector_when_the_environment_asks(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    providers: list[Any] = []  # the process has one provider for good; this test keeps its own
    monkeypatch.setattr(opentelemetry.trace, "set_tracer_provider", providers.append)
    tracing.configure("chat")
    with providers[0].get_tracer("test").start_as_current_span("greeting"):
        pass
    providers[0].shutdown()
    (sent,) = collector.resource_spans
    assert {attribute.key: attribute.value.string_value for attribute in sent.resource.attributes}[
        "service.name"
    ] == "kakeya-chat"
    assert [span.name for span in sent.scope_spans[0].spans] == ["greeting"]


def test_a_collector_here_is_reached_past_the_proxy(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    providers: list[Any] = []
    monkeypatch.setattr(opentelemetry.trace, "set_tracer_provider", providers.append)
    with refusing_proxy(monkeypatch) as proxy:
        tracing.configure("chat")
        with providers[0].get_tracer("test").start_as_current_span("greeting"):
            pass
        providers[0].shutdown()
    assert (len(collector.resource_spans), proxy.requests) == (1, [])


def test_spans_go_over_http_past_the_proxy_where_the_variables_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    providers: list[Any] = []
    monkeypatch.setattr(opentelemetry.trace, "set_tracer_provider", providers.append)
    with http_collector() as collector, refusing_proxy(monkeypatch) as proxy:
        for name, value in collector.environment.items():
            monkeypatch.setenv(name, value)
        tracing.configure("chat")
        with providers[0].get_tracer("test").start_as_current_span("greeting"):
            pass
        providers[0].shutdown()
    assert (collector.names, proxy.requests) == (["greeting"], [])


@pytest.mark.parametrize(
    ("endpoint", "protocol", "said"),
    [
        ("http://[x", "grpc", "OTEL_EXPORTER_OTLP_ENDPOINT is not a URL"),
        ("localhost:4318", "http/protobuf", "OTEL_EXPORTER_OTLP_ENDPOINT is not a URL of http/protobuf"),
        ("http://localhost:4318", "http/json", "OTEL_EXPORTER_OTLP_PROTOCOL is 'http/json', and can be grpc or http"),
    ],
)
def test_a_collector_at_no_url_or_by_no_protocol(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, protocol: str, said: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    with pytest.raises(tracing.BadEndpoint, match=said):
        tracing.configure("chat")


def test_nothing_is_configured_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    monkeypatch.setattr(opentelemetry.trace, "set_tracer_provider", lambda _: pytest.fail("configured"))
    tracing.configure("chat")


def test_an_export_without_the_extra_names_the_cure(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(MissingExtra, match=r"kakeya\[otel\]"):
        tracing.configure("chat")
