"""Spans with the SDK in a process of its own: the tracer provider is set once and for all."""

import json
import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from kakeya_shared.rpc import tracing

PROGRAM = """
import json
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from kakeya_shared.rpc import tracing

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
with tracing.client_span("/kakeya.v1.RuntimeService/Generate") as metadata:
    with tracing.server_span("/kakeya.v1.RuntimeService/Generate", metadata + (("x-bin", b"1"),)) as span:
        tracing.annotate(kv_live_bytes=7, op_id="a")
        tracing.annotate_session("tiny.x")
        tracing.fail(span, "DRAINING")
tracing.shut_down()
print(json.dumps([
    {"name": s.name, "kind": s.kind.name, "trace": s.context.trace_id, "id": s.context.span_id,
     "parent": s.parent and s.parent.span_id, "attributes": dict(s.attributes), "status": s.status.description}
    for s in exporter.get_finished_spans()
]))
"""


def test_a_call_is_one_trace_with_our_attributes() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    server, client = json.loads(done.stdout)
    assert (server["kind"], client["kind"]) == ("SERVER", "CLIENT")
    assert (server["trace"], server["parent"], client["parent"]) == (client["trace"], client["id"], None)
    assert server["name"] == client["name"] == "kakeya.v1.RuntimeService/Generate"
    assert server["status"] == "DRAINING"
    rpc = {"rpc.system": "grpc", "rpc.service": "kakeya.v1.RuntimeService", "rpc.method": "Generate"}
    assert client["attributes"] == rpc
    ours = {"kakeya.kv_live_bytes": 7, "kakeya.op_id": "a", "gen_ai.conversation.id": "tiny.x"}
    assert server["attributes"] == rpc | ours


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, False),
        ({"OTEL_SDK_DISABLED": "True", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, False),
    ],
)
def test_the_standard_variables_decide(environment: dict[str, str], wanted: bool) -> None:
    assert tracing.wanted(environment) is wanted


def test_without_an_exporter_spans_carry_nothing_and_annotations_cost_nothing() -> None:
    tracing.configure("test")
    with tracing.client_span("/a.B/C") as metadata:
        tracing.annotate(kv_live_bytes=1)
        tracing.annotate_session("x")
    assert metadata == ()
    tracing.shut_down()


def test_configure_names_the_service_and_shut_down_ends_the_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    providers: list[TracerProvider] = []
    monkeypatch.setattr(trace, "set_tracer_provider", providers.append)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: providers[0])
    tracing.configure("test")
    assert providers[0].resource.attributes["service.name"] == "kakeya-test"
    tracing.shut_down()


def test_a_served_call_without_a_callers_context_starts_a_trace() -> None:
    with tracing.server_span("/a.B/C", ()) as span:
        assert not span.is_recording()


def test_heartbeats_have_no_spans() -> None:
    method = "/kakeya.worker.v1.RegistryService/Heartbeat"
    with tracing.server_span(method, ()) as span:
        assert span is trace.INVALID_SPAN
        assert trace.get_current_span() is trace.INVALID_SPAN


def test_annotations_reach_a_recording_span(monkeypatch: pytest.MonkeyPatch) -> None:
    span = TracerProvider().get_tracer("test").start_span("a")
    monkeypatch.setattr(trace, "get_current_span", lambda: span)
    tracing.annotate(token_count=3)
    tracing.fail(span, "why")
    span.end()
    assert dict(span.attributes or {}) == {"kakeya.token_count": 3}  # type: ignore[attr-defined]  # the SDK's span
