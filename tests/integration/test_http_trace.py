"""One HTTP request is one trace over four processes: this one, `kakeya http`, the router and the worker."""

import re
import uuid
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import httpx
import pytest
from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from tests.integration.http_stack import HttpStack, prompt_ids
from tests.integration.open_http import ENDLESS, MODEL
from tests.integration.otlp_receiver import ReceivedSpan
from tests.integration.processes import wait_until

CLIENT, SERVER = 3, 2  # opentelemetry.proto.trace.v1.Span.SpanKind
CHAT = "/v1/chat/completions"
PUBLIC, INTERNAL = "kakeya.v1.RuntimeService", "kakeya.worker.v1.VerifierService"
PROMPT = "The password of the lighthouse is marmalade"
BODY: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": PROMPT}],
    "max_tokens": 20,
    "logit_bias": ENDLESS,
    "seed": 2,
    "user": "user-heliotrope",
}


@pytest.fixture
async def client(http: HttpStack) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {http.key}", "user-agent": "agent-periwinkle"}
    async with httpx.AsyncClient(base_url=f"http://{http.shim.address}", headers=headers, timeout=60) as client:
        yield client


def traced(http: HttpStack, trace_id: str, num_services: int, root: str = f"POST {CHAT}") -> list[ReceivedSpan]:
    """The spans of a trace once they are all there: one root, of that name, every other one has its parent.

    A process sends its spans in batches: a root may arrive after what lies below it.
    """

    def spans() -> list[ReceivedSpan]:
        return [span for span in list(http.receiver.spans) if span.trace_id == trace_id]

    def is_whole() -> bool:
        known = {span.span_id for span in spans()}
        roots = [span for span in spans() if span.parent_id not in known]
        answered = [span for span in spans() if span.name == f"{INTERNAL}/Generate" and span.kind == SERVER]
        return (
            [span.name for span in roots] == [root]
            and len({span.service for span in spans()}) == num_services
            and bool(answered)
        )

    wait_until(is_whole, "one tree of spans, down to the worker's answer")
    return spans()


def only(spans: list[ReceivedSpan], service: str, name: str, kind: int) -> ReceivedSpan:
    (span,) = [span for span in spans if (span.service, span.name, span.kind) == (service, name, kind)]
    return span


def ancestry(spans: list[ReceivedSpan], span: ReceivedSpan) -> list[tuple[str, str]]:
    """Service and name of a span and of all above it, the root first."""
    by_id = {each.span_id: each for each in spans}
    line = [span]
    while parent := by_id.get(line[0].parent_id):
        line.insert(0, parent)
    return [(each.service, each.name) for each in line]


async def test_one_request_is_one_trace_from_four_processes(http: HttpStack, client: httpx.AsyncClient) -> None:
    provider = TracerProvider(resource=Resource({"service.name": "application"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(http.receiver.address, insecure=True)))
    try:
        with provider.get_tracer("application").start_as_current_span("ask", kind=trace.SpanKind.CLIENT) as span:
            headers: dict[str, str] = {}
            propagate.inject(headers)
            answer = await client.post(CHAT, json=BODY, headers=headers)
    finally:
        provider.shutdown()
    assert answer.status_code == 200
    spans = traced(http, trace.format_trace_id(span.get_span_context().trace_id), 4, root="ask")
    assert {span.service for span in spans} == {"application", "kakeya-http", "kakeya-router", "kakeya-worker"}
    assert not any(span.is_error for span in spans)
    request = only(spans, "kakeya-http", f"POST {CHAT}", SERVER)
    assert request.parent_id == only(spans, "application", "ask", CLIENT).span_id
    assert request.attributes["http.request.method"] == "POST"
    assert request.attributes["http.route"] == CHAT
    assert request.attributes["http.response.status_code"] == 200
    worked = only(spans, "kakeya-worker", f"{INTERNAL}/Generate", SERVER)
    above = ancestry(spans, worked)
    assert above[:2] == [("application", "ask"), ("kakeya-http", f"POST {CHAT}")]
    assert above[-4:] == [
        ("kakeya-http", f"{PUBLIC}/Turn"),
        ("kakeya-router", f"{PUBLIC}/Turn"),
        ("kakeya-router", f"{INTERNAL}/Generate"),
        ("kakeya-worker", f"{INTERNAL}/Generate"),
    ]
    inference = only(spans, "kakeya-http", f"chat {MODEL}", CLIENT)
    assert inference.parent_id == request.span_id
    asked = [span.name for span in spans if (span.service, span.kind) == ("kakeya-http", CLIENT) if span != inference]
    assert [name for name in asked if name != f"{PUBLIC}/ListModels"] == [f"{PUBLIC}/Turn"], "one call"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_without_a_trace_begins_one(http: HttpStack, client: httpx.AsyncClient, stream: bool) -> None:
    known = {span.trace_id for span in http.receiver.spans}
    answer = await client.post(CHAT, json={**BODY, "stream": stream})
    assert answer.status_code == 200

    def roots() -> list[ReceivedSpan]:
        named = http.receiver.named(f"POST {CHAT}")
        return [span for span in named if span.trace_id not in known and not span.parent_id]

    wait_until(lambda: bool(roots()), "the span of the request")
    (root,) = roots()
    assert (root.service, root.kind) == ("kakeya-http", SERVER)
    spans = traced(http, root.trace_id, 3)
    assert {span.service for span in spans} == {"kakeya-http", "kakeya-router", "kakeya-worker"}
    assert all(ancestry(spans, span)[0] == ("kakeya-http", f"POST {CHAT}") for span in spans)


async def test_a_trace_says_nothing_of_what_was_said(http: HttpStack, client: httpx.AsyncClient) -> None:
    trace_id = uuid.uuid4().hex
    headers = {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"}
    answer = await client.post(f"{CHAT}?colour=viridian", json=BODY, headers=headers)
    said = answer.json()["choices"][0]["message"]["content"]
    assert len(said) > 20
    secrets = {"lighthouse", "marmalade", "heliotrope", "periwinkle", "viridian", "Bearer", http.key, http.key[-12:]}
    secrets |= {text[at : at + 20] for text in (PROMPT, said) for at in range(len(text) - 19)}
    in_a_row = set(pairwise(prompt_ids(("user", PROMPT))))
    spans = traced(http, trace_id, 3)
    (request,) = [span for span in spans if span.name == f"POST {CHAT}"]
    assert request.parent_id == "00f067aa0ba902b7"
    for span in spans:
        assert not [secret for secret in secrets if secret in span.written], span.name
        for value in map(str, span.attributes.values()):
            assert not in_a_row & set(pairwise(map(int, re.findall(r"\d+", value)))), span.name


async def test_what_machines_ask_every_few_seconds_is_not_traced(http: HttpStack, client: httpx.AsyncClient) -> None:
    for path in ("/healthz", "/readyz", "/metrics"):
        assert (await client.get(path)).status_code == 200
    assert (await client.get("/v1/models")).status_code == 200
    wait_until(lambda: bool(http.receiver.named("GET /v1/models")), "the span of what came after them")
    names = {span.name for span in list(http.receiver.spans) if span.service == "kakeya-http"}
    assert not [name for name in names if "z" in name.lower() or "metrics" in name]
