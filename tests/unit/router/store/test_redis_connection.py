"""What stands between a router and its Redis: TLS, a busy machine, credentials, and a server that takes no writes."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis.asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kakeya_router.settings import RouterSettings
from kakeya_router.store.connection import RedisConnection
from kakeya_shared.errors.tree import StoreUnavailable
from kakeya_shared.settings.service import EXIT_USAGE
from tests.certificates import Authority, Pair
from tests.redis_server import RedisServer
from tests.small_disk import small_disk_or_skip
from tests.unit.router.stack import Client, Stack, eventually
from tests.unit.router.store.servers.test_shared_redis import greet, scripted


@asynccontextmanager
async def before(
    host: str, port: int, *, tls: ssl.SSLContext | None = None, delay_seconds: float = 0.0
) -> AsyncIterator[int]:
    """The port of what forwards connections, maybe as their TLS end; nothing of each is heard for a while.

    At the end they are cut, and closed.
    """
    accepted: list[asyncio.Task[Any] | None] = []

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(asyncio.current_task())
        ends = [writer]
        try:
            await asyncio.sleep(delay_seconds)
            inner_reader, inner_writer = await asyncio.open_connection(host, port)
            ends.append(inner_writer)
            await asyncio.gather(forward(reader, inner_writer), forward(inner_reader, writer), return_exceptions=True)
        finally:
            for end in ends:
                end.close()
                with suppress(OSError):
                    await end.wait_closed()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in filter(None, accepted):
            task.cancel()
        await asyncio.gather(*filter(None, accepted), return_exceptions=True)


@asynccontextmanager
async def tls_before(url: str, pair: Pair, delay_seconds: float = 0.0) -> AsyncIterator[int]:
    """The port of a Redis with TLS, on a machine so busy that a connection takes its time."""
    place = urlsplit(url)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.cert, pair.key)
    async with (
        before(place.hostname or "", place.port or 0, tls=context) as end,
        before("127.0.0.1", end, delay_seconds=delay_seconds) as port,
    ):
        yield port


async def test_a_tls_connection_that_takes_longer_than_a_second_to_begin_is_no_outage(
    stack: Stack, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    async with tls_before(stack.url, authority.pair("redis"), delay_seconds=1.5) as port:
        client = await stack.router(redis=f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={authority.path}")
        await eventually(lambda: _serves(client), timeout_seconds=60)


async def test_a_certificate_of_somebody_else_is_refused(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    authority, other = Authority(tmp_path), Authority(tmp_path / "other")
    async with tls_before(redis_url, other.pair("redis")) as port:
        for options, is_trusted in ((f"ssl_ca_certs={authority.path}", False), ("ssl_cert_reqs=none", True)):
            connection = RedisConnection(f"rediss://127.0.0.1:{port}?{options}")
            if is_trusted:
                await connection.now_ms()
            else:
                with pytest.raises(StoreUnavailable):
                    await connection.now_ms()
            await connection.aclose()


async def _serves(client: Client) -> bool:
    response = await health_pb2_grpc.HealthStub(client.channel).Check(health_pb2.HealthCheckRequest())
    return bool(response.status == health_pb2.HealthCheckResponse.SERVING)


@pytest.fixture
async def admin(own_redis: RedisServer) -> AsyncIterator["redis.asyncio.Redis"]:
    async with redis.asyncio.Redis.from_url(own_redis.url, protocol=2) as client:
        yield client


async def _refusal(url: str) -> str:
    """What a call is refused with that must write."""
    connection = RedisConnection(url)
    with pytest.raises(StoreUnavailable) as raised:
        await connection.script("announce_router", ["kakeya:routers"], address="h:1", lease_ms=1000)
    await connection.aclose()
    return raised.value.message


async def test_who_is_not_let_in_is_told_so(own_redis: RedisServer, admin: "redis.asyncio.Redis") -> None:
    at = own_redis.url.removeprefix("redis://")
    await admin.execute_command("ACL", "SETUSER", "guest", "on", ">pass%word", "~*", "+ping", "+select", "+client")
    assert "refuses this router (invalid username-password pair" in await _refusal(f"redis://guest:wrong@{at}")
    assert "has no permissions to run the 'evalsha'" in await _refusal(f"redis://guest:pass%25word@{at}")
    assert "refuses this router (DB index is out of range" in await _refusal(own_redis.url.replace("/0", "/999"))


async def test_a_server_that_takes_no_writes_says_why(own_redis: RedisServer, admin: "redis.asyncio.Redis") -> None:
    await admin.config_set("maxmemory", "1")
    assert "takes no writes (OOM command not allowed" in await _refusal(own_redis.url)
    await admin.config_set("maxmemory", "0")
    await admin.execute_command("REPLICAOF", "127.0.0.1", "1")
    assert "takes no writes (READONLY You can't write against a read only replica" in await _refusal(own_redis.url)


@pytest.mark.parametrize("code", ["OOM", "READONLY", "CLUSTERDOWN", "MISCONF"])
@pytest.mark.parametrize(
    "form", ["-{} it says so. script: abc, on @user_script:1.", "-ERR Error running script: -{} it says so"]
)
async def test_why_no_writes_are_taken_is_told_with_its_code(code: str, form: str) -> None:
    """As Redis 7 answers a script, and as 6.2 does."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        await reader.readuntil(b"EVALSHA")
        writer.write(f"{form.format(code)}\r\n".encode())
        if code == "READONLY":  # the router leaves this server, and asks a last thing of it
            writer.write(b"+PONG\r\n")

    async with scripted(serve) as url:
        assert f"takes no writes ({code} it says so" in await _refusal(url)


@pytest.mark.parametrize(
    "url", ["redis://h1:1,h2:2/0", "redis+sentinel://h", "redis://:hush@h/x", "redis://:hu/sh@h:1", "redis://h:99999"]
)
def test_a_url_that_no_client_understands_ends_the_start_in_one_line(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        RouterSettings.parse(["--redis", url])
    assert raised.value.code == EXIT_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kakeya router: error: --redis (KAKEYA_ROUTER_REDIS): ")
    assert "supported: redis://" in line
    assert "hu" not in line


async def test_a_full_disk_under_a_redis_that_is_away_is_named(own_redis: RedisServer, tmp_path: Path) -> None:
    with small_disk_or_skip(tmp_path / "disk", mebibytes=1) as disk:
        connection = RedisConnection(own_redis.url, directory=disk.path)
        await asyncio.to_thread(own_redis.stop)
        for fill, end in ((disk.empty, r"\(ConnectionError\)$"), (disk.fill, f": the disk of {disk.path} is full: ")):
            fill()
            with pytest.raises(StoreUnavailable, match=rf"^Redis does not answer .*{end}"):
                await connection.now_ms()
        await connection.aclose()


async def test_what_comes_after_the_end_connects_to_nobody(redis_url: str) -> None:
    connection = RedisConnection(redis_url)
    await connection.claim_layout()
    await connection.aclose()
    for late in (connection.now_ms, connection.claim_layout):
        with pytest.raises(StoreUnavailable, match="this router has stopped"):
            await late()
