"""The spans of requests, without a process-wide tracer provider."""

import asyncio
from collections.abc import Sequence

import pytest
from opentelemetry import baggage, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from kakeya_http_shim.middleware import request_span
from kakeya_http_shim.middleware.request_span import RequestSpan, with_request_span
from tests.unit.http_shim.served import echo, eventually, raw_client

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"traceparent: 00-{TRACE}-{PARENT}-01\r\n"


class Spans:
    """Those that have ended."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def all(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def one(self) -> ReadableSpan:
        [span] = self.all()
        return span


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(request_span, "_tracer", provider.get_tracer("test"))
    return Spans(exporter)


async def tell_trace(request: Request) -> PlainTextResponse:
    """The trace that a task of the app's own finds itself in."""

    async def inner() -> str:
        return trace.format_trace_id(trace.get_current_span().get_span_context().trace_id)

    return PlainTextResponse(await asyncio.create_task(inner()))


async def fail(request: Request) -> PlainTextResponse:
    raise ValueError("the prompt says: secret")


def app() -> RequestSpan:
    routes = [Route(path, tell_trace) for path in ("/v1/models/{id}", "/healthz", "/readyz", "/metrics")]
    return RequestSpan(Starlette(routes=[*routes, Route("/fail", fail)]))


def test_without_tracing_it_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    assert with_request_span(echo) is echo
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)
    assert isinstance(with_request_span(echo), RequestSpan)


async def test_a_request_is_a_span_of_its_clients_trace(spans: Spans) -> None:
    async with raw_client(app()) as client:
        assert (await client.get("/v1/models/m?q=secret", headers=TRACEPARENT)).body == TRACE.encode()
        await client.leave()
        await eventually(lambda: bool(spans.all()))
    span = spans.one()
    assert (span.name, span.kind, span.status.status_code) == ("GET /v1/models/{id}", SpanKind.SERVER, StatusCode.UNSET)
    assert span.parent is not None
    assert trace.format_span_id(span.parent.span_id) == PARENT
    assert span.attributes == {
        "http.request.method": "GET",
        "http.route": "/v1/models/{id}",
        "http.response.status_code": 200,
        "url.scheme": "http",
        "network.protocol.version": "1.1",
    }


async def test_the_baggage_of_strangers_goes_no_further(spans: Spans) -> None:
    async def tell_baggage(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(str(dict(baggage.get_all())))(scope, receive, send)

    async with raw_client(RequestSpan(tell_baggage)) as client:
        assert (await client.get(headers=f"{TRACEPARENT}baggage: a=b\r\n")).body == b"{}"


@pytest.mark.parametrize("headers", ["", "traceparent: nonsense\r\n", TRACEPARENT * 2])
async def test_without_a_clients_trace_each_request_begins_one(spans: Spans, headers: str) -> None:
    async with raw_client(app()) as client:
        told = [(await client.get("/v1/models/m", headers=headers)).body.decode() for _ in range(2)]
        await eventually(lambda: len(spans.all()) == 2)
    assert len({*told, TRACE}) == 3
    assert [span.parent for span in spans.all()] == [None, None]


async def test_what_strangers_make_up_is_in_no_span(spans: Spans) -> None:
    async with raw_client(app()) as client:
        headers = "User-Agent: secret\r\nAuthorization: Bearer secret\r\n"
        await client.get("/secret?secret", "SECRET", headers)
        await client.get("/fail", headers=headers)
        await eventually(lambda: len(spans.all()) == 2)
    unknown, failed = spans.all()
    assert (unknown.name, unknown.attributes["http.request.method"]) == ("HTTP", "_OTHER")  # type: ignore[index]
    assert (failed.name, failed.attributes["error.type"]) == ("GET /fail", "ValueError")  # type: ignore[index]
    assert not any("secret" in span.to_json().lower() for span in spans.all())


async def test_an_error_of_the_server_is_one_of_the_span(spans: Spans) -> None:
    async def unavailable(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("", 503)(scope, receive, send)

    async with raw_client(RequestSpan(unavailable)) as client:
        await client.get()
        await eventually(lambda: bool(spans.all()))
    assert spans.one().status.status_code is StatusCode.ERROR
    assert dict(spans.one().attributes or {})["error.type"] == "503"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_what_machines_ask_all_the_time_is_no_span(spans: Spans, path: str) -> None:
    async with raw_client(app()) as client:
        assert (await client.get(path, headers=TRACEPARENT)).body == b"0" * 32
    assert not spans.all()


async def test_the_span_of_a_client_that_leaves_ends_with_the_work_for_it(spans: Spans) -> None:
    go = asyncio.Event()

    async def careful(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        await go.wait()

    async with raw_client(RequestSpan(careful)) as client:
        await client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await asyncio.sleep(0.02)
        await client.leave()
        await asyncio.sleep(0.02)
        assert not spans.all()
        go.set()
        await eventually(lambda: bool(spans.all()))


async def test_the_span_of_a_request_that_is_cut_ends(spans: Spans) -> None:
    async def stuck(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    scope = {"type": "http", "method": "POST", "path": "/", "scheme": "http", "http_version": "1.1", "headers": []}
    request = asyncio.create_task(RequestSpan(stuck)(scope, _nothing, _unheard))
    await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert dict(spans.one().attributes or {})["error.type"] == "CancelledError"


async def _nothing() -> Message:
    raise AssertionError("nobody may read")


async def _unheard(message: Message) -> None:
    raise AssertionError("nobody may answer")


async def test_other_protocols_pass(spans: Spans) -> None:
    seen: list[str] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    await RequestSpan(note)({"type": "lifespan"}, _nothing, _unheard)
    assert (seen, spans.all()) == (["lifespan"], ())
