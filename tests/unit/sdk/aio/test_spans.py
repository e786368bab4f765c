"""The spans of the calls, and how they travel."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, Tracer

import kakeya
from kakeya import AsyncClient
from kakeya._spans import _otel
from tests.unit.sdk.scripted_runtime import BYTES_PER_TOKEN, ScriptedRuntime, fails

SERVICE = "kakeya.v1.RuntimeService"


class Recorder:
    """Collects the spans that ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = provider.get_tracer("test")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(_otel, "_tracer", recorder.tracer)
    return recorder


async def test_a_turn_is_one_span_and_reaches_the_runtime(runtime: ScriptedRuntime, recorder: Recorder) -> None:
    async with AsyncClient(runtime.address, tracing=True) as client:
        with recorder.tracer.start_as_current_span("application") as application:
            async with await client.create_session() as session:
                await session.turn([1, 2], max_tokens=3).all()
    (turn,) = recorder.named(f"{SERVICE}/Turn")
    assert turn.parent == application.get_span_context()
    assert turn.kind is SpanKind.CLIENT
    assert runtime.metadata["Turn"][0]["traceparent"].startswith(_traceparent(turn))
    assert len(recorder.named(f"{SERVICE}/CreateSession")) == 1
    assert not recorder.named("kakeya turn")


async def test_a_turn_of_several_calls_is_one_trace(runtime: ScriptedRuntime, recorder: Recorder) -> None:
    runtime.has_turn = False
    async with AsyncClient(runtime.address, tracing=True) as client:
        with recorder.tracer.start_as_current_span("application") as application:
            async with await client.create_session() as session:
                await session.turn([1, 2], max_tokens=3).all()
    (turn,) = recorder.named("kakeya turn")
    (append,) = recorder.named(f"{SERVICE}/AppendTokens")
    (generate,) = recorder.named(f"{SERVICE}/Generate")
    assert turn.parent == application.get_span_context()
    assert append.parent == generate.parent == turn.get_span_context()
    assert (turn.kind, append.kind, generate.kind) == (SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.CLIENT)
    assert dict(turn.attributes or {}) == {"gen_ai.conversation.id": session.id}
    for method, span in (("AppendTokens", append), ("Generate", generate)):
        assert runtime.metadata[method][0]["traceparent"].startswith(_traceparent(span))


def _traceparent(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-"


async def test_spans_carry_lengths_and_bytes_and_no_tokens(runtime: ScriptedRuntime, recorder: Recorder) -> None:
    async with AsyncClient(runtime.address, tracing=True) as client, await client.create_session() as session:
        await session.append([1, 2])
        await session.generate(max_tokens=3).all()
        await session.turn([9, 10], max_tokens=2).all()
    names = {"rpc.system": "grpc", "rpc.service": SERVICE, "rpc.grpc.status_code": 0}
    conversation = {"gen_ai.conversation.id": session.id}
    (create,) = recorder.named(f"{SERVICE}/CreateSession")
    assert dict(create.attributes or {}) == names | conversation | {
        "rpc.method": "CreateSession",
        "kakeya.history_length": 0,
        "kakeya.kv_live_bytes": 0,
    }
    (append,) = recorder.named(f"{SERVICE}/AppendTokens")
    assert dict(append.attributes or {}) == names | conversation | {
        "rpc.method": "AppendTokens",
        "kakeya.num_new_tokens": 2,
        "kakeya.history_length": 2,
        "kakeya.kv_live_bytes": 2 * BYTES_PER_TOKEN,
        "kakeya.num_evicted_tokens": 7,
    }
    (generate,) = recorder.named(f"{SERVICE}/Generate")
    assert dict(generate.attributes or {}) == names | conversation | {
        "rpc.method": "Generate",
        "kakeya.num_generated_tokens": 3,
        "kakeya.history_length": 5,
        "kakeya.kv_live_bytes": 5 * BYTES_PER_TOKEN,
        "kakeya.num_evicted_tokens": 5,
    }
    (turn,) = recorder.named(f"{SERVICE}/Turn")
    assert dict(turn.attributes or {}) == names | conversation | {
        "rpc.method": "Turn",
        "kakeya.num_new_tokens": 2,
        "kakeya.num_generated_tokens": 2,
        "kakeya.history_length": 9,
        "kakeya.kv_live_bytes": 9 * BYTES_PER_TOKEN,
        "kakeya.num_evicted_tokens": 7 + 5,
    }


async def test_each_attempt_has_a_span(runtime: ScriptedRuntime, recorder: Recorder) -> None:
    runtime.before["CreateSession"].append(fails("NO_WORKER"))
    async with AsyncClient(runtime.address, tracing=True) as client:
        await client.create_session()
    failed, succeeded = recorder.named(f"{SERVICE}/CreateSession")
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "NO_WORKER")
    assert (failed.attributes or {})["rpc.grpc.status_code"] == 14
    assert succeeded.status.status_code is StatusCode.UNSET


async def test_a_cancelled_stream_ends_its_spans(runtime: ScriptedRuntime, recorder: Recorder) -> None:
    runtime.hold_after = 1
    async with AsyncClient(runtime.address, tracing=True) as client:
        session = await client.create_session()
        async with session.turn([1], max_tokens=9):
            assert not recorder.named(f"{SERVICE}/Turn")
    (turn,) = recorder.named(f"{SERVICE}/Turn")
    assert (turn.attributes or {})["rpc.grpc.status_code"] == 1
    assert turn.status.status_code is StatusCode.ERROR


async def test_a_cancelled_stream_of_several_calls_ends_its_spans(runtime: ScriptedRuntime, recorder: Recorder) -> None:
    runtime.hold_after, runtime.has_turn = 1, False
    async with AsyncClient(runtime.address, tracing=True) as client:
        session = await client.create_session()
        async with session.turn([1], max_tokens=9):
            assert not recorder.named(f"{SERVICE}/Generate")
    (generate,) = recorder.named(f"{SERVICE}/Generate")
    (turn,) = recorder.named("kakeya turn")
    assert (generate.attributes or {})["rpc.grpc.status_code"] == 1
    assert generate.status.status_code is turn.status.status_code is StatusCode.ERROR


async def test_a_turn_that_cannot_start_ends_its_span(runtime: ScriptedRuntime, recorder: Recorder) -> None:
    async with AsyncClient(runtime.address, tracing=True) as client:
        session = await client.create_session()
        runtime.sessions.clear()
        with pytest.raises(kakeya.SessionNotFound):
            await session.turn([1], max_tokens=1).all()
    (turn,) = recorder.named(f"{SERVICE}/Turn")
    assert turn.status.description == "SESSION_NOT_FOUND"
    assert (turn.attributes or {})["gen_ai.conversation.id"] == session.id


async def test_tracing_can_be_refused(runtime: ScriptedRuntime, recorder: Recorder) -> None:
    async with AsyncClient(runtime.address, tracing=False) as client, await client.create_session() as session:
        await session.turn([1], max_tokens=1).all()
    assert not recorder.named(f"{SERVICE}/Turn")
    assert all("traceparent" not in metadata for calls in runtime.metadata.values() for metadata in calls)
