"""Spans with the SDK in a process of its own: the tracer provider is set once and for all."""

import json
import subprocess
import sys
import time
from collections.abc import Generator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from kakeya_shared.errors.tree import Draining
from kakeya_shared.rpc import trace_export, tracing
from tests.exported_spans import ExportedSpans

PROGRAM = """
import json
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from kakeya_shared.rpc import trace_export, tracing

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
with tracing.client_span("/kakeya.v1.RuntimeService/Generate") as metadata:
    with tracing.server_span("/kakeya.v1.RuntimeService/Generate", metadata + (("x-bin", b"1"),)) as span:
        tracing.annotate(kv_live_bytes=7, op_id="a")
        tracing.annotate_session("tiny.x")
        tracing.fail(span, "DRAINING")
trace_export.shut_down()
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


def test_without_an_exporter_spans_carry_nothing_and_annotations_cost_nothing() -> None:
    trace_export.configure("test")
    with tracing.client_span("/a.B/C") as metadata, tracing.part("placement") as span:
        tracing.annotate(kv_live_bytes=1)
        tracing.annotate_session("x")
        tracing.past("queue", 0.0, 1.0)
    assert (metadata, span) == ((), trace.INVALID_SPAN)
    trace_export.shut_down()


def test_a_served_call_without_a_callers_context_starts_a_trace() -> None:
    with tracing.server_span("/a.B/C", ()) as span:
        assert not span.is_recording()


@pytest.mark.parametrize(
    "method", ["worker.v1.RegistryService/Heartbeat", "worker.v1.RegistryService/Tunnel", "admin.v1.AdminService/Watch"]
)
def test_what_is_part_of_no_request_has_no_span(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    monkeypatch.setattr(tracing, "_exports_nothing", lambda: False)
    monkeypatch.setattr(tracing, "_tracer", TracerProvider().get_tracer("test"))
    with tracing.server_span("/kakeya.worker.v1.RegistryService/Join", ()) as span:
        assert span.is_recording()
    with tracing.server_span(f"/kakeya.{method}", ()) as span:
        assert span is trace.INVALID_SPAN
        assert trace.get_current_span() is trace.INVALID_SPAN


def test_annotations_reach_a_recording_span(monkeypatch: pytest.MonkeyPatch) -> None:
    span = TracerProvider().get_tracer("test").start_span("a")
    monkeypatch.setattr(trace, "get_current_span", lambda: span)
    tracing.annotate(token_count=3)
    tracing.fail(span, "why")
    span.end()
    assert dict(span.attributes or {}) == {"kakeya.token_count": 3}  # type: ignore[attr-defined]  # the SDK's span


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> ExportedSpans:
    return ExportedSpans(monkeypatch, tracing)


def test_a_part_lies_in_its_call_and_has_our_attributes(exported: ExportedSpans) -> None:
    with tracing.server_span("/a.B/C", ()) as call, tracing.part("placement", worker_id="w"):
        tracing.annotate(epoch=2)
    span = exported.only("placement")
    assert span.parent is not None
    assert span.parent.span_id == call.get_span_context().span_id
    assert dict(span.attributes or {}) == {"kakeya.worker_id": "w", "kakeya.epoch": 2}
    assert span.status.is_unset


def test_a_part_that_fails_says_its_reason_and_not_its_message(exported: ExportedSpans) -> None:
    with pytest.raises(Draining), tracing.part("placement"):
        raise Draining("a message that quotes what was said")
    with pytest.raises(KeyError), tracing.part("journal"):
        raise KeyError("likewise")
    assert exported.only("placement").status.description == "DRAINING"
    assert exported.only("journal").status.description == "KeyError"
    assert not exported.only("journal").events


def test_a_generator_that_is_left_has_not_failed(exported: ExportedSpans) -> None:
    def tokens() -> Generator[int, None, None]:
        with tracing.client_span("/a.B/Generate"):
            yield 1
            yield 2

    left = tokens()
    next(left)
    left.close()
    assert exported.only("a.B/Generate").status.is_unset


def test_what_follows_on_a_lost_call_has_a_link_to_it(exported: ExportedSpans) -> None:
    with tracing.client_span("/a.B/Generate", "[::1]:7000"):
        lost = tracing.here()
    with tracing.part("recovery", (lost,)), tracing.client_span("/a.B/Stop", "unix:/x", (lost, tracing.here())):
        pass
    with tracing.client_span("/a.B/Append", "10.0.0.1:7000", (trace.INVALID_SPAN_CONTEXT,)):
        pass
    assert [link.context.span_id for link in exported.only("recovery").links] == [lost.span_id]
    assert len(exported.only("a.B/Stop").links) == 2
    assert not exported.only("a.B/Append").links
    addresses = [dict(exported.only(f"a.B/{name}").attributes or {}) for name in ("Generate", "Stop", "Append")]
    assert [each.get("server.address") for each in addresses] == ["::1", None, "10.0.0.1"]
    assert [each.get("server.port") for each in addresses] == [7000, None, 7000]


def test_what_was_only_timed_is_told_when_it_is_over(exported: ExportedSpans) -> None:
    now, now_ns = time.perf_counter(), time.time_ns()
    with tracing.server_span("/a.B/C", ()):
        tracing.past("prefill", now - 3.0, now - 1.0, chunks=4)
        tracing.past("decode", None, now)
        tracing.past("decode", now, None)
    tracing.past("queue", now - 3.0, now)  # of no call
    span = exported.only("prefill")
    assert exported.names == ["prefill", "a.B/C"]
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time - span.start_time == pytest.approx(2e9, abs=1e6)
    assert span.start_time <= now_ns - 2.9e9
    assert dict(span.attributes or {}) == {"kakeya.chunks": 4}


def test_a_context_goes_through_a_process_that_exports_nothing() -> None:
    carried = (("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),)
    with tracing.server_span("/a.B/C", carried), tracing.client_span("/a.B/D") as metadata:
        pass
    assert metadata == carried
