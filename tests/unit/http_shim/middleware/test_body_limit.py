"""Bodies that are too large, too many or too slow, from clients on real sockets."""

import asyncio
from collections.abc import Callable

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kakeya_http_shim.middleware.body_limit import BodyLimit
from kakeya_http_shim.problems import ApiError
from tests.loop_clock import LoopClock
from tests.unit.http_shim.served import RawClient, answer, connected, echo, eventually, raw_client, read_body, served

LIMIT = 1000


def limited(
    app: ASGIApp = echo, *, held_bytes: int = 1 << 21, seconds: float = 60.0, max_bytes: int = LIMIT
) -> BodyLimit:
    return BodyLimit(app, max_bytes, held_bytes, seconds)


def post(headers: str, body: str = "") -> str:
    return f"POST /x HTTP/1.1\r\nHost: h\r\n{headers}\r\n{body}"


async def test_a_body_of_the_largest_size_passes_and_the_connection_stays() -> None:
    limit = limited()
    async with raw_client(limit) as client:
        for _ in range(2):
            await client.send(post(f"Content-Length: {LIMIT}\r\n", "x" * LIMIT))
            assert (await client.answer()).body == b"x" * LIMIT
    assert limit.num_held_bytes == 0


async def test_a_larger_one_is_refused_before_it_comes() -> None:
    seen: list[Scope] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    async with raw_client(limited(note)) as client:
        await client.send(post(f"Content-Length: {LIMIT + 1}\r\nExpect: 100-continue\r\n"))
        refusal = await client.answer()
        assert (refusal.status, refusal.code, refusal.headers["connection"]) == (413, "request_too_large", "close")
        assert str(LIMIT) in refusal.json()["error"]["message"]
        assert await client.is_closed()
    assert not seen


async def test_a_refused_client_that_sends_everything_first_can_read_why() -> None:
    async with raw_client(limited()) as client:
        size = 20_000_000
        client.writer.write(post(f"Content-Length: {size}\r\n").encode())
        with pytest.raises(ConnectionError):
            for _ in range(size // 100_000):
                await client.send(b"x" * 100_000)
                await asyncio.sleep(0)
            raise ConnectionError  # the system took it all, as it well may
        assert (await client.answer()).status == 413


async def test_chunks_are_counted_as_they_come() -> None:
    async with raw_client(limited()) as client:
        await client.send(post("Transfer-Encoding: chunked\r\n"))
        for _ in range(LIMIT // 100):
            await client.send(b"64\r\n" + b"x" * 100 + b"\r\n")
        await asyncio.sleep(0.02)
        await client.send(b"1\r\nx\r\n")
        refusal = await client.answer()
        assert (refusal.status, refusal.code) == (413, "request_too_large")
        assert await client.is_closed()


async def test_chunks_up_to_the_limit_pass() -> None:
    async with raw_client(limited()) as client:
        await client.send(post("Transfer-Encoding: chunked\r\n", "3e8\r\n" + "x" * LIMIT + "\r\n0\r\n\r\n"))
        assert (await client.answer()).body == b"x" * LIMIT


@pytest.mark.parametrize(
    "headers",
    ["Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"],
)
async def test_two_kinds_of_length_are_one_too_many(headers: str) -> None:
    async with raw_client(limited()) as client:
        await client.send(post(headers, "0\r\n\r\n"))
        assert (await client.answer()).status == 400


@pytest.mark.parametrize("length", [b"-1", b"1.5", b"", b"\xb2"])
async def test_a_length_that_is_no_number_is_refused(length: bytes) -> None:
    scope: Scope = {"type": "http", "headers": [(b"content-length", length)]}
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await limited()(scope, never, send)
    assert sent[0]["status"] == 400


async def never() -> Message:
    raise AssertionError("nobody may read")


async def test_bodies_that_are_too_much_together_are_refused() -> None:
    release = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive)
        await release.wait()
        await answer(send, body)

    limit = limited(slow, held_bytes=5)
    async with served(limit) as address, connected(address) as first, connected(address) as second:
        await first.send(post("Content-Length: 3\r\n", "ab"))
        await second.send(post("Transfer-Encoding: chunked\r\n", "2\r\nxy\r\n"))
        await eventually(lambda: limit.num_held_bytes == 5)
        for refused in (post("Content-Length: 1\r\n", "a"), post("Transfer-Encoding: chunked\r\n", "1\r\na\r\n")):
            async with connected(address) as third:
                await third.send(refused)
                refusal = await third.answer()
                assert (refusal.status, refusal.code, refusal.headers["retry-after"]) == (503, "too_many_bytes", "1")
        await first.send("c")
        await second.send("0\r\n\r\n")
        await asyncio.sleep(0.05)
        assert limit.num_held_bytes == 5, "until they are answered"
        release.set()
        assert [(await client.answer()).body for client in (first, second)] == [b"abc", b"xy"]
        await eventually(lambda: limit.num_held_bytes == 0)
        assert (await first.get("/bodiless")).status == 200


@pytest.mark.parametrize("end", [RawClient.leave, lambda client: _reset(client)])
async def test_a_client_that_leaves_in_its_body_frees_its_place(end: Callable[[RawClient], asyncio.Future]) -> None:
    ends: list[str] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await read_body(receive)
        except ConnectionError:
            ends.append("left")

    limit = limited(note)
    async with raw_client(limit) as client:
        await client.send(post("Content-Length: 3\r\n", "a"))
        await eventually(lambda: limit.num_held_bytes == 3)
        await end(client)
        await eventually(lambda: limit.num_held_bytes == 0)
        await eventually(lambda: ends == ["left"])


async def _reset(client: RawClient) -> None:
    client.writer.transport.abort()


async def test_a_body_that_pauses_is_refused(clock: LoopClock) -> None:
    limit = limited()
    async with raw_client(limit) as client:
        await client.send(post("Content-Length: 3\r\n", "a"))
        await eventually(lambda: limit.num_held_bytes == 3)
        clock.skip(61)
        refusal = await client.answer()
        assert (refusal.status, refusal.code) == (408, "request_timeout")
        assert await client.is_closed()
    assert limit.num_held_bytes == 0


async def test_a_body_that_drips_is_refused(clock: LoopClock) -> None:
    async with raw_client(limited()) as client:
        await client.send(post("Content-Length: 900\r\n"))
        began = clock()
        waiting = asyncio.create_task(client.answer())
        while not waiting.done():
            await client.send("x")
            await clock.elapse(5)
        assert (await waiting).status == 408
        assert clock() - began < 120


async def test_a_long_body_at_a_good_pace_has_as_long_as_it_takes(clock: LoopClock) -> None:
    async with raw_client(limited(max_bytes=1 << 20)) as client:
        await client.send(post(f"Content-Length: {12 * 65536}\r\n"))
        for _ in range(12):  # longer than the time-out altogether
            await client.send(b"x" * 65536)
            await clock.elapse(10)
        assert len((await client.answer()).body) == 12 * 65536


async def test_the_apps_own_time_does_not_count(clock: LoopClock) -> None:
    has_begun = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        first = (await receive())["body"]
        clock.skip(100)
        has_begun.set()
        await answer(send, first + await read_body(receive))

    async with raw_client(limited(slow)) as client:
        await client.send(post("Content-Length: 4\r\n", "ab"))
        await has_begun.wait()
        await client.send("cd")
        assert (await client.answer()).body == b"abcd"


async def test_who_waits_for_the_client_to_leave_may_wait_long(clock: LoopClock) -> None:
    async def patient(scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive)
        leaving = asyncio.ensure_future(receive())
        for _ in range(2):
            await clock.elapse(100)
        assert not leaving.done()
        await answer(send, body)
        await leaving

    async with raw_client(limited(patient)) as client:
        await client.send(post("Content-Length: 2\r\n", "ab"))
        assert (await client.answer()).body == b"ab"


async def test_a_framework_that_makes_something_else_of_the_failure_does_not_hide_it() -> None:
    async def route(request: Request) -> PlainTextResponse:
        try:
            return PlainTextResponse(await request.body())
        except Exception:
            return PlainTextResponse("something else", 200)

    async with raw_client(limited(Starlette(routes=[Route("/x", route, methods=["POST"])]))) as client:
        await client.send(post("Transfer-Encoding: chunked\r\n", "800\r\n" + "x" * 2048 + "\r\n0\r\n\r\n"))
        assert (await client.answer()).status == 413


async def test_whoever_reads_on_after_a_refusal_finds_the_client_gone(clock: LoopClock) -> None:
    messages: list[Message] = []

    async def stubborn(scope: Scope, receive: Receive, send: Send) -> None:
        with pytest.raises(ApiError):
            await read_body(receive)
        messages.append(await receive())

    async with raw_client(limited(stubborn)) as client:
        await client.send(post("Content-Length: 3\r\n"))
        await clock.elapse(61)
        assert (await client.answer()).status == 408
        await eventually(lambda: messages == [{"type": "http.disconnect"}])


def plain_exchange(*messages: Message) -> tuple[Scope, Receive, list[Message], Send]:
    """A request with a body, without a server."""
    left = list(messages)
    sent: list[Message] = []

    async def receive() -> Message:
        return left.pop(0) if left else await asyncio.Event().wait()  # type: ignore[return-value]

    async def send(message: Message) -> None:
        sent.append(message)

    return {"type": "http", "headers": [(b"transfer-encoding", b"chunked")]}, receive, sent, send


async def test_after_the_begin_of_the_answer_the_app_alone_can_act() -> None:
    async def early(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await read_body(receive)

    scope, receive, sent, send = plain_exchange({"type": "http.request", "body": b"x" * 2000, "more_body": True})
    limit = limited(early)
    with pytest.raises(ApiError):
        await limit(scope, receive, send)
    assert ([message["type"] for message in sent], limit.num_held_bytes) == (["http.response.start"], 0)


async def test_an_error_of_the_app_is_the_apps() -> None:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        raise ApiError(418, "not of the limit")

    scope, receive, sent, send = plain_exchange()
    limit = limited(fail)
    with pytest.raises(ApiError, match="not of the limit"):
        await limit(scope, receive, send)
    assert (sent, limit.num_held_bytes) == ([], 0)


async def test_a_time_out_of_what_is_below_is_not_taken_for_ours() -> None:
    async def receive() -> Message:
        raise TimeoutError("of the server")

    scope, _, sent, send = plain_exchange()
    with pytest.raises(TimeoutError, match="of the server"):
        await limited()(scope, receive, send)
    assert not sent


async def test_a_cancelled_request_frees_its_place() -> None:
    scope, receive, _, send = plain_exchange({"type": "http.request", "body": b"x", "more_body": True})
    limit = limited()
    request = asyncio.create_task(limit(scope, receive, send))
    await eventually(lambda: limit.num_held_bytes == 1)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert limit.num_held_bytes == 0


async def test_other_protocols_pass() -> None:
    seen: list[str] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    _, receive, _, send = plain_exchange()
    await limited(note)({"type": "lifespan"}, receive, send)
    assert seen == ["lifespan"]
