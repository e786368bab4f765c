"""Who a request says it is for."""

import pytest
from starlette.types import Message, Receive, Scope, Send

from kakeya_http_shim.middleware.host_check import HostCheck
from kakeya_http_shim.settings import HttpSettings
from tests.unit.http_shim.served import echo, raw_client

OWN = HttpSettings.parse([]).hosts


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:8000", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8000", "localhost:"]
)
async def test_its_own_names_let_a_request_in(host: str) -> None:
    async with raw_client(HostCheck(echo, OWN)) as client:
        await client.send(f"GET /a HTTP/1.1\r\nHost: {host}\r\n\r\n")
        assert (await client.answer()).body == b"/a"


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.2", "lo\xe4"),
        *("", ":8000", "::1", "[::1", "[localhost]", "[::1]x"),
        *("localhost@evil.example", "localhost/", "localhost:80:80", "localhost:x"),
    ],
)
async def test_other_names_do_not(host: str) -> None:
    async with raw_client(HostCheck(echo, OWN)) as client:
        await client.send(f"GET /a HTTP/1.1\r\nHost: {host}\r\n\r\n".encode("latin-1"))
        refusal = await client.answer()
    assert (refusal.status, refusal.code) == (400, "unknown_host")
    assert "--allowed-hosts" in refusal.json()["error"]["message"]


async def test_neither_does_none() -> None:
    async with raw_client(HostCheck(echo, OWN)) as client:
        await client.send("GET /a HTTP/1.0\r\n\r\n")
        assert (await client.answer()).code == "unknown_host"


async def test_neither_do_two() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    host = (b"host", b"localhost")
    await HostCheck(echo, OWN)({"type": "http", "path": "/", "headers": [host, host]}, nothing, send)
    assert sent[0]["status"] == 400


async def nothing() -> Message:
    raise AssertionError("nobody may read")


@pytest.mark.parametrize(
    ("path", "status"),
    [*((path, 200) for path in ("/healthz", "/readyz", "/health", "/ping")), ("/metrics", 400), ("/", 400)],
)
async def test_probes_ask_by_address(path: str, status: int) -> None:
    async with raw_client(HostCheck(echo, OWN)) as client:
        await client.send(f"GET {path} HTTP/1.1\r\nHost: 10.0.0.7:8000\r\n\r\n")
        assert (await client.answer()).status == status


@pytest.mark.parametrize("head", ["HTTP/1.1\r\nHost: evil.example", "HTTP/1.0"])
async def test_without_names_anybody_comes_in(head: str) -> None:
    async with raw_client(HostCheck(echo, frozenset())) as client:
        await client.send(f"GET /a {head}\r\n\r\n")
        assert (await client.answer()).body == b"/a"


async def test_other_protocols_pass() -> None:
    seen: list[str] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    async def send(message: Message) -> None:
        raise AssertionError("nobody may answer")

    await HostCheck(note, OWN)({"type": "lifespan"}, nothing, send)
    assert seen == ["lifespan"]
