"""TLS of the listener: who may come in, and certificates that change while it runs."""

import asyncio
import os
import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from kakeya_http_shim.middleware.body_limit import BodyLimit
from kakeya_http_shim.server.protocol import ConnectionLimits
from kakeya_http_shim.server.server_tls import ServerTls, server_context
from kakeya_http_shim.settings import HttpSettings
from kakeya_shared.process.service_process import StartError
from kakeya_shared.settings.addresses import HostPort
from tests.certificates import Authority, Pair
from tests.loop_clock import LoopClock
from tests.unit.http_shim.served import connected, echo, eventually, raw_client, served


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def own(tmp_path: Path, authority: Authority) -> Pair:
    """The files that the server is given."""
    pair = authority.pair("first")
    own = Pair(tmp_path / "own.crt", tmp_path / "own.key")
    replace(own, pair)
    return own


def replace(own: Pair, pair: Pair) -> None:
    for source, target in ((pair.cert, own.cert), (pair.key, own.key)):
        shutil.copy(source, f"{target}.new")
        os.replace(f"{target}.new", target)


def trusting(authority: Authority, pair: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.path))
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    return context


async def subject(address: HostPort, context: ssl.SSLContext, **how: Any) -> str:
    """Of the certificate that the server shows, after a request."""
    async with connected(address, ssl=context, **how) as client:
        assert (await client.get("/a")).body == b"/a"
        [[[_, name]]] = client.writer.get_extra_info("peercert")["subject"]
        return str(name)


async def test_requests_come_in_by_tls(authority: Authority, own: Pair) -> None:
    async with served(echo, tls=ServerTls(own.cert, own.key).context) as address:
        context = trusting(authority)
        context.set_alpn_protocols(["h2", "http/1.1"])
        async with connected(address, ssl=context) as client:
            assert (await client.get("/a")).body == b"/a"
            assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"


async def test_a_refusal_in_mid_body_arrives_by_tls(authority: Authority, own: Pair) -> None:
    app = BodyLimit(echo, 1000, 10_000, 5.0)
    async with (
        served(app, tls=ServerTls(own.cert, own.key).context) as address,
        connected(address, ssl=trusting(authority)) as client,
    ):
        await client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2000\r\n\r\n" + "x" * 1500)
        assert (await client.answer()).status == 413
        assert await client.is_closed()


async def test_a_changed_certificate_is_shown_from_the_next_connection_on(authority: Authority, own: Pair) -> None:
    async with (
        served(echo, tls=ServerTls(own.cert, own.key).context) as address,
        connected(address, ssl=trusting(authority)) as standing,
    ):
        assert (await standing.get("/a")).status == 200
        assert await subject(address, trusting(authority)) == "first"
        replace(own, authority.pair("second"))
        assert await subject(address, trusting(authority)) == "second"
        assert await subject(address, trusting(authority), server_hostname="localhost") == "second"
        assert (await standing.get("/a")).status == 200


async def test_until_certificate_and_key_fit_the_last_ones_stay_in_use(authority: Authority, own: Pair) -> None:
    async with served(echo, tls=ServerTls(own.cert, own.key).context) as address:
        second = authority.pair("second")
        shutil.copy(second.cert, own.cert)
        with capture_logs() as logs:
            for _ in range(2):
                assert await subject(address, trusting(authority)) == "first"
        assert len(logs) == 1
        shutil.copy(second.key, own.key)
        assert await subject(address, trusting(authority)) == "second"


async def test_a_change_in_the_very_moment_of_loading_is_not_the_end(
    authority: Authority, own: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = ServerTls(own.cert, own.key)
    async with served(echo, tls=tls.context) as address:
        refresh = tls._files.refresh

        def refresh_and_lose() -> bool:
            is_new = refresh()
            if is_new:
                shutil.copy(authority.pair("third").key, own.key)
            return is_new

        monkeypatch.setattr(tls._files, "refresh", refresh_and_lose)
        replace(own, authority.pair("second"))
        with capture_logs() as logs:
            assert await subject(address, trusting(authority)) == "first"
        assert [line["log_level"] for line in logs] == ["info", "warning"]
        monkeypatch.undo()
        replace(own, authority.pair("fourth"))
        assert await subject(address, trusting(authority)) == "fourth"


async def test_a_client_of_tls_is_seen_to_leave(authority: Authority, own: Pair) -> None:
    ends: list[str] = []

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        ends.append("left")

    async with (
        served(stream, tls=ServerTls(own.cert, own.key).context) as address,
        connected(address, ssl=trusting(authority)) as polite,
        connected(address, ssl=trusting(authority)) as rude,
    ):
        for client in (polite, rude):
            await client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            assert (await client.head())[0] == 200
        await polite.leave()
        await eventually(lambda: ends == ["left"])
        rude.writer.transport.abort()
        await eventually(lambda: ends == ["left", "left"])


async def test_a_handshake_has_no_more_time_than_a_head(own: Pair, clock: LoopClock) -> None:
    limits = ConnectionLimits(head_timeout_seconds=60)
    async with raw_client(echo, tls=ServerTls(own.cert, own.key).context, limits=limits) as client:
        await client.send(b"\x16\x03\x01")
        await clock.elapse(61)
        assert await client.is_closed()


async def refused(address: HostPort, context: ssl.SSLContext) -> bool:
    """Whether the server lets nobody in who comes so."""
    try:
        await subject(address, context)
    except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
        return True
    return False


async def test_clients_must_show_a_certificate_where_authorities_are_given(
    authority: Authority, own: Pair, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger")
    async with served(echo, tls=ServerTls(own.cert, own.key, authority.path).context) as address:
        assert await refused(address, trusting(authority))
        assert await refused(address, trusting(authority, stranger.pair("client")))
        assert await subject(address, trusting(authority, authority.pair("client"))) == "first"


async def test_changed_authorities_are_those_that_count(authority: Authority, own: Pair, tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    trusted = tmp_path / "trusted.pem"
    shutil.copy(old.path, trusted)
    async with served(echo, tls=ServerTls(own.cert, own.key, trusted).context) as address:
        assert await subject(address, trusting(authority, old.pair("client"))) == "first"
        shutil.copy(new.path, trusted)
        assert await subject(address, trusting(authority, new.pair("newer client"))) == "first"
        assert await refused(address, trusting(authority, old.pair("client")))


async def test_plaintext_to_a_port_with_tls_gets_nothing(own: Pair) -> None:
    async with raw_client(echo, tls=ServerTls(own.cert, own.key).context) as client:
        await client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert await client.is_closed()


def settings(**files: Path) -> HttpSettings:
    return HttpSettings.model_construct(None, **files)


def test_without_files_there_is_no_tls() -> None:
    assert server_context(settings()) is None


def test_files_that_cannot_be_used_are_said_in_one_line(own: Pair, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    with pytest.raises(StartError, match=f"{nowhere}: No such file or directory"):
        server_context(settings(tls_cert=own.cert, tls_key=nowhere))
    assert server_context(settings(tls_cert=own.cert, tls_key=own.key)) is not None
