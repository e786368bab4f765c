"""Clients that say too little, too much, nonsense or nothing, byte for byte on real sockets."""

import asyncio
import contextvars
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import RequestResponseCycle

from kakeya_http_shim.middleware.request_ids import RequestIds
from kakeya_http_shim.server import protocol
from kakeya_http_shim.server.protocol import MAX_HEAD_BYTES, ConnectionLimits
from tests.loop_clock import LoopClock
from tests.unit.http_shim.served import RawClient, answer, connected, echo, eventually, raw_client, read_body, served

LIMITS = ConnectionLimits(
    head_timeout_seconds=60, send_timeout_seconds=60, connection_idle_seconds=600, max_connections=100
)
GET = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n"


def limits(**changed: Any) -> dict[str, ConnectionLimits]:
    return {"limits": replace(LIMITS, **changed)}


class Stream:
    """An app that answers with a chunk and goes on until its client leaves.

    Attributes:
        num_begun, num_left: requests that began; those whose client was seen to leave.
    """

    def __init__(self) -> None:
        self.num_begun = 0
        self.num_left = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.num_begun += 1
        await read_body(receive)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        self.num_left += 1


# Heads


async def test_half_a_head_gets_a_408_in_json(clock: LoopClock) -> None:
    async with raw_client(echo, **limits()) as client:
        await client.send("GET /a HTTP/1.1\r\nHo")
        await clock.elapse(61)
        refusal = await client.answer()
        assert (refusal.status, refusal.code) == (408, "request_timeout")
        assert (refusal.headers["connection"], refusal.headers["content-type"]) == ("close", "application/json")
        assert refusal.headers["date"].endswith("GMT")
        assert refusal.headers["x-request-id"].startswith("req_")
        assert await client.is_closed()


async def test_a_head_that_drips_has_no_more_time_than_another(clock: LoopClock) -> None:
    async with raw_client(echo, **limits()) as client:
        waiting = asyncio.create_task(client.answer())
        began = clock()
        await client.send("GET / HTTP/1.1\r\nHost: h\r\nX: ")
        while not waiting.done():
            await client.send("x")
            await clock.elapse(5)
        assert (await waiting).status == 408
        assert clock() - began < 120


async def test_a_connection_on_which_nothing_comes_is_closed_without_a_word(clock: LoopClock) -> None:
    async with raw_client(echo, **limits()) as client:
        await clock.elapse(61)
        assert await client.is_closed()


async def test_half_a_second_head_gets_a_408_too(clock: LoopClock) -> None:
    async with raw_client(echo, **limits()) as client:
        assert (await client.get("/a")).body == b"/a"
        await clock.elapse(100)  # between requests that time does not run
        await client.send("GET /b HT")
        await clock.elapse(61)
        assert (await client.answer()).status == 408


async def test_a_connection_is_kept_for_a_while_between_requests(clock: LoopClock) -> None:
    async with raw_client(echo, **limits()) as client:
        for _ in range(3):
            assert (await client.get("/a")).body == b"/a"
            await clock.elapse(400)
        await clock.elapse(300)
        assert await client.is_closed()


async def test_a_whole_exchange_byte_by_byte() -> None:
    async with raw_client(echo) as client:
        for _ in range(2):
            for (
                byte
            ) in b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n":
                await client.send(bytes([byte]))
                await asyncio.sleep(0)
            assert (await client.answer()).body == b"abcde"


async def test_a_large_head_passes_and_a_larger_one_does_not() -> None:
    for size, status in ((MAX_HEAD_BYTES - 1000, 200), (MAX_HEAD_BYTES + 20_000, 431)):
        for num_headers in (1, 100):
            head = "".join(f"X-{index}: {'x' * (size // num_headers)}\r\n" for index in range(num_headers))
            async with raw_client(echo) as client:
                await client.send(f"GET /a HTTP/1.1\r\nHost: h\r\n{head}\r\n")
                reply = await client.answer()
                assert reply.status == status
                assert status == 200 or reply.code == "invalid_http"


async def test_an_endless_head_is_cut() -> None:
    async with raw_client(echo) as client:
        client.writer.write(b"GET / HTTP/1.1\r\nX: " + b"x" * 10_000_000)
        assert (await client.answer()).status == 431


@pytest.mark.parametrize(
    "nonsense",
    [
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        "hello\r\n\r\n",
        "GET /\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /ä HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nA b: c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nA: b\0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
    ],
)
async def test_what_is_no_http_gets_a_400_in_json(nonsense: str) -> None:
    stream = Stream()
    async with raw_client(stream) as client:
        await client.send(nonsense)
        refusal = await client.answer()
        assert (refusal.status, refusal.code) == (400, "invalid_http")
        assert await client.is_closed()
    assert stream.num_begun == 0


async def test_an_unknown_encoding_is_said_to_be_unknown() -> None:
    async with raw_client(echo) as client:
        await client.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n")
        assert (await client.answer()).status == 501


@pytest.mark.parametrize("said", ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HTTP/1.2\r\nHost: h\r\n\r\n"])
async def test_other_versions_of_http_are_refused(said: str) -> None:
    async with raw_client(Stream()) as client:
        await client.send(said)
        refusal = await client.answer()
        assert refusal.headers["x-request-id"].startswith("req_")
        assert (refusal.status, refusal.code, refusal.headers["connection"]) == (505, "invalid_http", "close")
        assert await client.is_closed()


async def test_nonsense_in_a_body_is_refused_and_the_app_finds_its_client_gone() -> None:
    ends: list[str] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        with pytest.raises(ConnectionError):
            await read_body(receive)
        await answer(send)
        ends.append("gone")

    async with raw_client(note) as client:
        await client.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await asyncio.sleep(0.02)
        await client.send("nonsense\r\n")
        assert (await client.answer()).status == 400
        assert await client.is_closed()
        await eventually(lambda: ends == ["gone"])


async def test_nonsense_in_a_body_whose_answer_has_begun_cuts_the_connection() -> None:
    async def early(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        with pytest.raises(ConnectionError):
            await read_body(receive)

    async with raw_client(early) as client:
        await client.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        status, headers = await client.head()
        assert (status, headers["connection"], await client.chunk()) == (200, "close", b"first")
        await client.send("nonsense\r\n")
        assert await client.is_closed()


async def test_an_empty_line_between_two_requests_is_not_minded(clock: LoopClock) -> None:
    async with raw_client(echo, **limits()) as client:
        for _ in range(2):
            await client.send("\r\n")
            await client.send("\r\nPOST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab")
            assert (await client.answer()).body == b"ab"
            await client.send("\r\n")
        await clock.elapse(100)  # such a line is no begin of a head
        assert (await client.get("/a")).body == b"/a"


# Two requests at once


async def test_of_two_requests_at_once_the_first_is_answered_and_the_connection_closed() -> None:
    num_answered = 0

    async def count(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal num_answered
        num_answered += 1
        await answer(send, scope["path"].encode())

    async with raw_client(count) as client:
        await client.send(GET + GET.replace("/a", "/b"))
        reply = await client.answer()
        assert (reply.body, reply.headers["connection"]) == (b"/a", "close")
        assert await client.is_closed()
    assert num_answered == 1


@pytest.mark.parametrize("end", [RawClient.leave, lambda client: reset(client)])
async def test_a_client_that_says_more_is_still_seen_to_leave(end: Callable[[RawClient], asyncio.Future]) -> None:
    stream = Stream()
    async with raw_client(stream) as client:
        await client.send(GET)
        assert (await client.head())[0] == 200
        for _ in range(100):
            await client.send(GET * 100)  # far more than would be buffered
        await asyncio.sleep(0.02)
        assert (stream.num_begun, stream.num_left) == (1, 0)
        await end(client)
        await eventually(lambda: stream.num_left == 1)
    assert stream.num_begun == 1


async def reset(client: RawClient) -> None:
    client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.writer.transport.abort()


async def test_a_client_that_says_more_in_one_go_is_still_seen_to_leave() -> None:
    stream = Stream()
    async with raw_client(stream) as client:
        await client.send(GET * 2)
        assert (await client.head())[1]["connection"] == "close"
        await client.leave()
        await eventually(lambda: stream.num_left == 1)


async def test_a_client_is_seen_to_leave_while_nobody_has_read_its_large_body() -> None:
    left = asyncio.Event()
    go_on = asyncio.Event()

    async def lazy(scope: Scope, receive: Receive, send: Send) -> None:
        await go_on.wait()
        assert (await receive())["type"] == "http.disconnect"
        left.set()

    async with raw_client(lazy) as client:
        await client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 70000\r\n\r\n" + "x" * 70_000)
        await asyncio.sleep(0.05)
        await client.leave()
        await asyncio.sleep(0.05)
        go_on.set()
        await left.wait()


async def test_an_answer_before_the_end_of_its_request_is_the_last() -> None:
    async def early(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, b"no need")

    async with raw_client(early) as client:
        await client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10000000\r\n\r\n")
        for _ in range(20):
            await client.send("x" * 10_000)
        reply = await client.answer()
        assert (reply.body, reply.headers["connection"]) == (b"no need", "close")
        assert await client.is_closed()


async def test_a_client_that_sends_on_without_reading_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kakeya_http_shim.server.watched_transport._LINGER_SECONDS", 0.1)

    async def early(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, b"no need")

    async with raw_client(early) as client:
        await client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10000000000\r\n\r\n")
        with pytest.raises(ConnectionError):
            while True:
                await client.send("x" * 1000)
                await asyncio.sleep(0.001)


# Kinds of requests


async def test_http_1_0_is_answered_and_closed() -> None:
    async with raw_client(echo) as client:
        await client.send("GET /old HTTP/1.0\r\n\r\n")
        reply = await client.answer()
        assert (reply.body, reply.headers["connection"]) == (b"/old", "close")
        assert await client.is_closed()


async def test_http_1_0_gets_a_stream_without_chunks() -> None:
    async with raw_client(Stream(), grace_seconds=0) as client:
        await client.send("GET /old HTTP/1.0\r\n\r\n")
        status, headers = await client.head()
        assert (status, "transfer-encoding" in headers) == (200, False)
        assert await client.reader.readexactly(5) == b"first"


async def test_a_head_request_gets_a_head() -> None:
    async with raw_client(echo) as client:
        reply = await client.get("/path", "HEAD")
        assert (reply.status, reply.headers["content-length"]) == (200, "5")
        assert (await client.get("/next")).body == b"/next"


@pytest.mark.parametrize(("method", "target"), [("OPTIONS", "*"), ("CONNECT", "example.com:443"), ("BREW", "/pot")])
async def test_odd_requests_reach_the_app_and_the_connection_goes_on(method: str, target: str) -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, scope["method"].encode(), 405)

    async with raw_client(refuse) as client:
        for _ in range(2):
            reply = await client.get(target, method)
            assert (reply.status, reply.body) == (405, method.encode())


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
async def test_an_upgrade_is_not_made_and_its_client_is_seen_to_leave(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream()
    async with served(echo) as address, connected(address) as client:
        upgrade = f"Connection: Upgrade\r\nUpgrade: {protocol}\r\n"
        for _ in range(2):
            assert (await client.get("/a", headers=upgrade)).body == b"/a"
    async with raw_client(stream) as client:
        await client.send(GET.replace("Host", f"{upgrade}Host"))
        assert (await client.head())[0] == 200
        await client.leave()
        await eventually(lambda: stream.num_left == 1)
    assert not caplog.records


async def test_a_client_that_waits_to_be_asked_for_its_body_is_asked() -> None:
    async with raw_client(echo) as client:
        await client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert (await client.head())[0] == 100
        await client.send("ab")
        assert (await client.answer()).body == b"ab"


async def test_every_answer_has_its_date_and_no_word_of_the_server() -> None:
    async with raw_client(echo) as client:
        headers = (await client.get()).headers
    assert headers["date"].endswith("GMT")
    assert "server" not in headers


async def test_an_answer_has_the_date_of_its_second(monkeypatch: pytest.MonkeyPatch) -> None:
    dates = []
    async with raw_client(echo) as client:
        for now in (0.2, 0.9, 1.1):
            monkeypatch.setattr(protocol, "time", SimpleNamespace(time=lambda now=now: now))
            dates.append((await client.get()).headers["date"])
    assert dates == [f"Thu, 01 Jan 1970 00:00:0{second} GMT" for second in (0, 0, 1)]


async def test_what_one_request_leaves_in_its_context_is_not_there_for_the_next() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="clean")

    async def stain(scope: Scope, receive: Receive, send: Send) -> None:
        found = variable.get()
        variable.set("stained")
        await read_body(receive)
        await answer(send, found.encode())

    async with raw_client(stain) as client:
        for _ in range(3):
            # So large that reading pauses and is taken up again by the request itself.
            await client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 500000\r\n\r\n" + "x" * 500_000)
            assert (await client.answer()).body == b"clean"


# Failing apps


async def test_a_failure_before_the_answer_is_a_500_in_json(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("internals")

    async with raw_client(RequestIds(fail)) as client:
        reply = await client.get(headers="x-request-id: of-the-client\r\n")
    assert (reply.status, reply.code) == (500, "internal_error")
    assert reply.headers["x-request-id"] == "of-the-client"
    assert "internals" not in reply.body.decode()
    [record] = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[0] is ValueError


async def test_a_failure_in_the_answer_ends_it_without_an_end(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        raise ValueError

    async with raw_client(fail) as client:
        await client.send(GET)
        assert (await client.head())[0] == 200
        assert await client.chunk() == b"first"
        assert await client.is_closed()
    assert len(caplog.records) == 1


# Connections


def socket_of(receive: Receive) -> socket.socket:
    """The server's end of the connection that an app answers."""
    cycle: RequestResponseCycle = receive.__self__  # type: ignore[attr-defined]  # a method of it
    return cycle.transport.get_extra_info("socket")


async def test_small_pieces_are_sent_at_once() -> None:
    async def tell(scope: Scope, receive: Receive, send: Send) -> None:
        option = socket_of(receive).getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        await answer(send, str(bool(option)).encode())

    async with raw_client(tell) as client:
        assert (await client.get()).body == b"True"


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux how many packets it sent")
async def test_a_head_is_sent_with_its_body() -> None:
    async def tell(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, str(num_packets_sent(socket_of(receive))).encode())

    async with raw_client(tell) as client:
        assert [(await client.get()).body for _ in range(3)] == [b"0", b"1", b"2"]


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux how many packets it sent")
async def test_the_head_of_a_stream_is_sent_before_its_first_piece_is_made() -> None:
    async def tell(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(num_packets_sent(socket_of(receive))).encode()})

    async with raw_client(tell) as client:
        assert (await client.get()).body == b"1"


def num_packets_sent(connection: socket.socket) -> int:
    """Those that had data in them: tcpi_data_segs_out of Linux's struct tcp_info."""
    return int.from_bytes(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)[156:], sys.byteorder)


async def test_a_head_does_not_wait_for_a_body_that_is_late() -> None:
    go_on = asyncio.Event()

    async def tell(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"late"})

    async with raw_client(tell) as client:
        await client.send(GET)
        assert (await client.head())[0] == 200
        go_on.set()
        assert await client.chunk() == b"late"


async def test_connections_beyond_the_limit_are_told_so() -> None:
    async with served(echo, **limits(max_connections=2)) as address:
        async with connected(address) as first, connected(address) as second:
            for client in (first, second):
                assert (await client.get()).status == 200
            async with connected(address) as third:
                refusal = await third.get()
                assert (refusal.status, refusal.code) == (503, "too_many_connections")
                assert (refusal.headers["retry-after"], refusal.headers["connection"]) == ("1", "close")
                assert await third.is_closed()
            assert (await first.get()).status == 200
        async with connected(address) as fourth:
            assert (await fourth.get()).status == 200


async def test_connections_far_beyond_the_limit_are_cut_without_a_word() -> None:
    async with served(echo, **limits(max_connections=1)) as address, connected(address), connected(address) as second:
        assert (await second.answer()).status == 503
        async with connected(address) as third:
            assert await third.is_closed()


# Clients that do not read


def shrink_buffer(receive: Receive) -> None:
    """Lets a slow client's progress be seen in small steps; the system would show it in steps of a megabyte."""
    socket_of(receive).setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)


def flood(piece: bytes, ends: list[str]) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        shrink_buffer(receive)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        watching = asyncio.ensure_future(receive())
        while not watching.done() or watching.result()["type"] == "http.request":
            if watching.done():
                watching = asyncio.ensure_future(receive())
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)
        ends.append("gone")

    return app


async def test_a_client_that_never_reads_a_stream_is_cut_off(clock: LoopClock) -> None:
    ends: list[str] = []
    async with raw_client(flood(b"x" * 100_000, ends), **limits()) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a stream's is one for both ways
        await client.send(GET)
        while ends != ["gone"]:
            await clock.elapse(10)


async def test_a_client_that_reads_slowly_is_not(clock: LoopClock) -> None:
    ends: list[str] = []
    async with raw_client(flood(b"x" * 200_000, ends), **limits()) as client:
        client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        await client.send(GET)
        for _ in range(40):
            assert await client.reader.read(100_000)
            await clock.elapse(10)
        assert not ends


async def test_a_client_that_does_not_read_its_whole_answer_is_cut_off(clock: LoopClock) -> None:
    sockets = []

    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        sockets.append(socket_of(receive))
        await answer(send, b"x" * 30_000_000, connection="close")

    async with served(large, **limits()) as address, connected(address) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a stream's is one for both ways
        await client.send(GET)
        while [one.fileno() for one in sockets] != [-1]:
            await clock.elapse(10)
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await client.answer()


async def test_a_client_that_reads_its_last_answer_slowly_gets_all_of_it(clock: LoopClock) -> None:
    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        shrink_buffer(receive)
        await answer(send, b"x" * 10_000_000, connection="close")

    async with raw_client(large, **limits()) as client:
        client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        await client.send(GET)
        size = 0
        while piece := await client.reader.read(500_000):
            size += len(piece)
            await clock.elapse(10)
        assert size > 10_000_000
