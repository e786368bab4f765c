"""How a server begins to listen, and how it ends."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from kakeya_http_shim.server import listener
from kakeya_http_shim.server.listener import listening, serving
from kakeya_http_shim.settings import HttpSettings
from kakeya_shared.process.service_process import StartError
from kakeya_shared.settings.addresses import HostPort
from tests.certificates import Authority
from tests.unit.http_shim.served import RawClient, answer, connected, echo, eventually, raw_client, read_body

GET = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n"


class Slow:
    """An app that answers when it is told to.

    Attributes:
        begun: a request is under way.
        ends: how requests ended.
    """

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.ends: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun.set()
        try:
            await read_body(receive)
            if scope["path"] == "/stream":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"first", "more_body": True})
            await self.go.wait()
            await answer(send)
        except asyncio.CancelledError:
            self.ends.append("cancelled")
            raise
        self.ends.append("answered")


class Server:
    """A server that is stopped when a test likes."""

    def __init__(self, app: Any, **how: Any) -> None:
        self._stop = asyncio.Event()
        self._started: asyncio.Future[HostPort] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._run(app, how))

    async def _run(self, app: Any, how: dict[str, Any]) -> None:
        async with listening(app, "127.0.0.1:0", **how) as address:
            self._started.set_result(address)
            await self._stop.wait()

    async def client(self) -> RawClient:
        return RawClient(*await asyncio.open_connection(*await self._started))

    def stop(self) -> None:
        self._stop.set()


async def nothing_left() -> None:
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_taken_address_is_said_in_one_line() -> None:
    async with listening(echo, "127.0.0.1:0") as address:
        with pytest.raises(StartError) as error:
            async with listening(echo, str(address)):
                pytest.fail("it is taken")
    assert str(error.value) == f"cannot listen on {address}: Address already in use"


async def test_an_address_of_another_host_is_said_in_one_line() -> None:
    with pytest.raises(StartError, match=r"cannot listen on 203\.0\.113\.1:0: Cannot assign requested address$"):
        async with listening(echo, "203.0.113.1:0"):
            pytest.fail("it is not ours")


async def test_a_name_that_nobody_has_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_server", unknown)
    with pytest.raises(StartError, match=r"cannot listen on nobody:1: Name or service not known$"):
        async with listening(echo, "nobody:1"):
            pytest.fail("nobody has it")


async def test_what_is_no_name_of_a_host_is_said_in_one_line() -> None:
    name = 64 * "a"
    with pytest.raises(StartError, match=rf"cannot listen on {name}\.b:1: .*label"):
        async with listening(echo, f"{name}.b:1"):
            pytest.fail("a label has 63 characters at most")


async def test_ipv6() -> None:
    async with listening(echo, "[::1]:0") as address, connected(address) as client:
        assert str(address) == f"[::1]:{address.port}"
        assert (await client.get("/six")).body == b"/six"


async def test_the_settings_say_how(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.pair("server")
    flags = ["--bind", "127.0.0.1:0", "--tls-cert", str(pair.cert), "--tls-key", str(pair.key)]
    limits = ["--head-timeout-seconds", "0.05", "--shutdown-grace-seconds", "0"]
    settings = HttpSettings.parse([*flags, *limits])
    tls = ssl.create_default_context(cafile=str(authority.path))
    cut_short = asyncio.Event()
    async with serving(echo, settings, cut_short=cut_short) as address, connected(address, ssl=tls) as client:
        assert (await client.get("/a")).body == b"/a"
        await client.send("GET")
        assert (await client.answer()).status == 408
    assert cut_short.is_set()


async def test_requests_under_way_have_their_time_and_nobody_else_comes_in() -> None:
    app = Slow()
    cut_short = asyncio.Event()
    server = Server(app, grace_seconds=3600.0, cut_short=cut_short)
    busy, idle, half, silent = [await server.client() for _ in range(4)]
    app.go.set()
    assert (await idle.get()).status == 200
    app.go.clear()
    app.begun.clear()
    await half.send("GET / HT")
    await busy.send(GET)
    await app.begun.wait()
    server.stop()
    for client in (idle, half, silent):
        assert await client.is_closed()
    with pytest.raises(ConnectionRefusedError):
        await server.client()
    assert not cut_short.is_set()
    app.go.set()
    last = await busy.answer()
    assert (last.body, last.headers["connection"]) == (b"hello", "close")
    assert await busy.is_closed()
    await server.task
    assert app.ends == ["answered", "answered"]
    for client in (busy, idle, half, silent):
        await client.leave()
    await nothing_left()


async def test_a_body_under_way_has_its_time_too() -> None:
    server = Server(echo, grace_seconds=3600.0)
    client = await server.client()
    await client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nab")
    await asyncio.sleep(0.02)
    server.stop()
    await asyncio.sleep(0.02)
    await client.send("cd")
    assert (await client.answer()).body == b"abcd"
    await server.task
    await client.leave()


async def test_after_its_time_an_answer_can_still_say_why_it_ends() -> None:
    cut_short = asyncio.Event()

    async def explain(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await cut_short.wait()
        await send({"type": "http.response.body", "body": b"sorry"})

    server = Server(explain, grace_seconds=0.1, cut_short=cut_short)
    client = await server.client()
    await client.send(GET)
    assert (await client.head())[0] == 200
    server.stop()
    assert [await client.chunk(), await client.chunk()] == [b"sorry", b""]
    await server.task
    await client.leave()


async def test_what_does_not_end_is_cut(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(listener, "_LAST_WORDS_SECONDS", 0.05)
    app = Slow()
    server = Server(app, grace_seconds=0.05)
    waiting, streaming = await server.client(), await server.client()
    await waiting.send(GET)
    await streaming.send(GET.replace("/a", "/stream"))
    assert (await streaming.head())[0] == 200
    assert await streaming.chunk() == b"first"
    server.stop()
    refusal = await waiting.answer()
    assert (refusal.status, refusal.code, refusal.headers["retry-after"]) == (503, "stopping", "1")
    assert await streaming.is_closed()
    await server.task
    assert app.ends == ["cancelled", "cancelled"]
    assert not caplog.records
    for client in (waiting, streaming):
        await client.leave()
    await nothing_left()


async def test_a_request_that_will_not_end_is_left_with_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LAST_WORDS_SECONDS", "_CLEANUP_SECONDS"):
        monkeypatch.setattr(listener, name, 0.05)
    go = asyncio.Event()

    async def stubborn(scope: Scope, receive: Receive, send: Send) -> None:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    with capture_logs() as logs:
        server = Server(stubborn, grace_seconds=0.0)
        client = await server.client()
        await client.send(GET)
        await asyncio.sleep(0.02)
        server.stop()
        await server.task
    assert [line["requests"] for line in logs] == [1]
    assert await client.is_closed()
    await client.leave()
    go.set()


async def test_a_client_that_takes_nothing_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_LAST_WORDS_SECONDS", 0.05)

    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, b"x" * 30_000_000)

    server = Server(large, grace_seconds=0.05)
    client = await server.client()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a stream's is one for both ways
    await client.send(GET)
    await asyncio.sleep(0.1)
    server.stop()
    await server.task
    await client.leave()


async def test_work_for_a_client_that_has_left_has_its_time_too() -> None:
    app = Slow()
    server = Server(app, grace_seconds=3600.0)
    client = await server.client()
    await client.send(GET)
    await app.begun.wait()
    await client.leave()
    server.stop()
    await asyncio.sleep(0.05)
    assert not server.task.done()
    app.go.set()
    await server.task
    assert app.ends == ["answered"]


async def test_a_server_that_is_cancelled_in_its_grace_time_cuts_at_once() -> None:
    app = Slow()
    server = Server(app, grace_seconds=60.0)
    client = await server.client()
    await client.send(GET)
    await app.begun.wait()
    server.stop()
    await asyncio.sleep(0.02)
    server.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await server.task
    assert app.ends == ["cancelled"]
    await client.leave()
    await nothing_left()


async def test_a_failure_inside_ends_the_server_and_goes_on() -> None:
    with pytest.raises(ValueError, match="inside"):
        async with listening(echo, "127.0.0.1:0", grace_seconds=0.0) as address:
            raise ValueError("inside")
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address)


async def test_a_handshake_that_ends_after_the_server_began_to_stop_gets_no_connection(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.pair("server")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.cert, pair.key)
    app = Slow()
    server = Server(app, grace_seconds=0.5, tls=tls)
    busy_tls = ssl.create_default_context(cafile=str(authority.path))
    address = await server._started
    busy = RawClient(*await asyncio.open_connection(*address, ssl=busy_tls))
    await busy.send(GET)
    await app.begun.wait()
    late = await server.client()  # has not said a word of TLS yet
    await asyncio.sleep(0.02)
    server.stop()
    await asyncio.sleep(0.02)
    with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
        await late.writer.start_tls(busy_tls, server_hostname="127.0.0.1")
        await late.send(GET)
        await late.answer()
    app.go.set()
    assert (await busy.answer()).status == 200
    await server.task
    late.writer.transport.abort()
    await busy.leave()


async def test_many_clients_at_once_and_nothing_is_left() -> None:
    async def one(client: RawClient) -> None:
        assert (await client.get("/a")).body == b"/a"

    async with raw_client(echo) as first:
        await one(first)
        address = HostPort(*first.writer.get_extra_info("peername"))
        clients = [RawClient(*await asyncio.open_connection(*address)) for _ in range(50)]
        await asyncio.gather(*(one(client) for client in clients))
        for client in clients:
            await client.leave()
    await eventually(lambda: len(asyncio.all_tasks()) == 1)
