"""What is counted, under which labels."""

import asyncio
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from kakeya_http_shim.metrics import CountRequests, Metrics
from kakeya_http_shim.middleware.body_limit import BodyLimit
from tests.unit.http_shim.served import echo, eventually, raw_client

Labels = tuple[str, str, str]


def counted(metrics: Metrics) -> dict[Labels, float]:
    """Requests by route, method and status."""
    return {
        (sample.labels["route"], sample.labels["method"], sample.labels["status"]): sample.value
        for family in text_string_to_metric_families(metrics.exposition()[0].decode())
        for sample in family.samples
        if sample.name == "kakeya_http_requests_total"
    }


def value(metrics: Metrics, name: str) -> float:
    match = re.search(rf"^kakeya_http_{name} (.*)$", metrics.exposition()[0].decode(), re.MULTILINE)
    assert match is not None
    return float(match[1])


async def hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


async def endless(request: Request) -> StreamingResponse:
    async def pieces():  # type: ignore[no-untyped-def]
        yield b"first"
        await asyncio.Event().wait()

    return StreamingResponse(pieces())


async def fail(request: Request) -> PlainTextResponse:
    raise ValueError


def app() -> Starlette:
    return Starlette(
        routes=[
            Route("/v1/models/{id:path}", hello),
            Route("/v1/chat", hello, methods=["POST"]),
            Route("/endless", endless),
            Route("/fail", fail),
        ]
    )


def test_there_may_be_several() -> None:
    first, second = Metrics(), Metrics()
    first.prompt_tokens.inc(3)
    assert (value(first, "prompt_tokens_total"), value(second, "prompt_tokens_total")) == (3, 0)


def test_prometheus_can_read_all_of_it() -> None:
    content, media_type = Metrics().exposition()
    assert media_type.startswith("text/plain; version=")
    names = {family.name for family in text_string_to_metric_families(content.decode())}
    assert {name for name in names if name.startswith("kakeya_")} == {
        f"kakeya_http_{name}"
        for name in [
            *("requests", "rejected_requests", "disconnected_requests", "prompt_tokens", "completion_tokens"),
            *("sessions", "appended_tokens", "reused_tokens", "failed_tags"),
            *("in_flight_requests", "waiting_requests"),
            *("request_duration_seconds", "time_to_first_token_seconds", "time_per_output_token_seconds"),
        ]
    }


async def test_requests_are_counted_by_template_method_and_status() -> None:
    metrics = Metrics()
    async with raw_client(CountRequests(app(), metrics)) as client:
        for path in ("/v1/models/a", "/v1/models/a/b"):
            await client.get(path)
        await client.get("/v1/chat")
        for number in range(3):
            await client.get(f"/nowhere/{number}")
        await client.get("/v1/models/a", "BREW")
        await client.get("/v1/models/a", "HEAD")
    assert counted(metrics) == {
        ("/v1/models/{id:path}", "GET", "200"): 2,
        ("/v1/chat", "GET", "405"): 1,
        ("unknown", "GET", "404"): 3,
        ("/v1/models/{id:path}", "other", "405"): 1,
        ("/v1/models/{id:path}", "HEAD", "200"): 1,
    }
    assert value(metrics, 'request_duration_seconds_count{route="unknown"}') == 3
    assert value(metrics, "disconnected_requests_total") == 0


async def test_a_failure_is_a_500() -> None:
    metrics = Metrics()

    async def silent_failure(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError

    for failing in (app(), silent_failure):
        async with raw_client(CountRequests(failing, metrics)) as client:
            assert (await client.get("/fail")).status == 500
    assert counted(metrics) == {("/fail", "GET", "500"): 1, ("unknown", "GET", "500"): 1}


async def test_who_leaves_in_the_answer_is_counted_with_its_status() -> None:
    metrics = Metrics()
    async with raw_client(CountRequests(app(), metrics)) as client:
        await client.send("GET /endless HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await client.head())[0] == 200
        await client.leave()
        await eventually(lambda: counted(metrics) == {("/endless", "GET", "200"): 1})
    assert value(metrics, "disconnected_requests_total") == 1


async def test_who_leaves_before_the_answer_is_counted_as_disconnected_whatever_is_said_then() -> None:
    metrics = Metrics()

    async def late(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        if scope["path"] == "/late":
            await echo(scope, _no_body, send)

    for path in ("/late", "/never"):
        async with raw_client(CountRequests(late, metrics)) as client:
            await client.send(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
    await eventually(lambda: counted(metrics) == {("unknown", "GET", "disconnected"): 2})
    assert value(metrics, "disconnected_requests_total") == 2


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def test_who_leaves_in_its_body_is_counted_as_disconnected() -> None:
    metrics = Metrics()

    async def read(request: Request) -> PlainTextResponse:
        return PlainTextResponse(await request.body())

    routed = Starlette(routes=[Route("/read", read, methods=["POST"])])
    async with raw_client(CountRequests(BodyLimit(routed, 100, 1000, 5), metrics)) as client:
        await client.send("POST /read HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\na")
        await asyncio.sleep(0.02)
    await eventually(lambda: counted(metrics) == {("/read", "POST", "disconnected"): 1})


async def test_asking_for_the_end_after_it_is_no_leaving() -> None:
    metrics = Metrics()

    async def curious(scope: Scope, receive: Receive, send: Send) -> None:
        await echo(scope, receive, send)
        await receive()

    async with raw_client(CountRequests(curious, metrics)) as client:
        await client.get()
    assert value(metrics, "disconnected_requests_total") == 0


async def test_a_request_that_is_cut_is_counted() -> None:
    metrics = Metrics()

    async def stuck(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    scope = {"type": "http", "method": "GET"}
    request = asyncio.create_task(CountRequests(stuck, metrics)(scope, _no_body, _unheard))
    await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert counted(metrics) == {("unknown", "GET", "503"): 1}


async def _unheard(message: Message) -> None:
    raise AssertionError("nobody may answer")


async def test_other_protocols_pass_uncounted() -> None:
    metrics = Metrics()
    seen: list[str] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    await CountRequests(note, metrics)({"type": "lifespan"}, _no_body, _unheard)
    assert (seen, counted(metrics)) == (["lifespan"], {})
