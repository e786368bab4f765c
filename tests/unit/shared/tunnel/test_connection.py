"""Connections whose bytes are copied, over real sockets: all arrive, slow readers hold up senders, ends are told."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from kakeya_shared.tunnel.connection import MAX_LINE_BYTES, Connection, ConnectionEnded, Connections
from tests.certificates import Authority

SECONDS = 60.0
_MUCH = 64 << 20


@asynccontextmanager
async def _listening(*, is_secured: bool = False) -> AsyncIterator[tuple[int, "asyncio.Queue[Connection]"]]:
    """A port, and the connections that come to it."""
    made: asyncio.Queue[Connection] = asyncio.Queue()
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(made.put_nowait, is_secured=is_secured), "127.0.0.1", 0
    )
    try:
        yield server.sockets[0].getsockname()[1], made
    finally:
        server.close()


@asynccontextmanager
async def _guests(number: int) -> AsyncIterator[list[tuple[Connection, asyncio.StreamReader, asyncio.StreamWriter]]]:
    """Connections, each with its far end."""
    async with _listening() as (port, made):
        guests = []
        for _ in range(number):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            guests.append((await made.get(), reader, writer))
        yield guests
        for _, _, writer in guests:
            writer.close()
        await _end(*(connection for connection, _, _ in guests))


async def _end(*standing: Connection) -> None:
    connections = Connections()
    for connection in standing:
        connections.add(connection)
    await connections.end()


async def test_bytes_go_both_ways_those_of_before_it_was_joined_too() -> None:
    async with _guests(2) as [(one, reader, writer), (two, other_reader, other_writer)]:
        writer.write(b"first line\nearly")
        assert await asyncio.wait_for(one.line(), SECONDS) == "first line"
        one.join(two)
        other_writer.write(b"answer")
        assert await asyncio.wait_for(other_reader.readexactly(5), SECONDS) == b"early"
        assert await asyncio.wait_for(reader.readexactly(6), SECONDS) == b"answer"
        assert one.peer.startswith("127.0.0.1:")


async def test_a_slow_reader_holds_up_the_sender_and_nothing_is_lost() -> None:
    async with _guests(2) as [(one, _, writer), (two, reader, _)]:
        one.join(two)
        writer.write(bytes(_MUCH))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer.drain(), 0.5)
        received = 0
        while received < _MUCH:
            received += len(await asyncio.wait_for(reader.read(1 << 20), SECONDS))
        await asyncio.wait_for(writer.drain(), SECONDS)


async def test_what_nobody_has_joined_waits_in_the_kernel() -> None:
    async with _guests(2) as [(one, _, writer), (two, reader, _)]:
        writer.write(bytes(_MUCH))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer.drain(), 0.5)
        one.join(two)
        await asyncio.wait_for(reader.readexactly(_MUCH), SECONDS)


async def test_the_end_of_one_is_the_end_of_the_other_after_all_that_was_sent() -> None:
    async with _guests(2) as [(one, _, writer), (two, reader, _)]:
        one.join(two)
        writer.write(b"last words")
        writer.close()
        assert await asyncio.wait_for(reader.read(), SECONDS) == b"last words"
        await asyncio.wait_for(two.ended, SECONDS)


async def test_to_join_one_that_has_ended_ends_the_other() -> None:
    async with _guests(2) as [(one, _, writer), (two, reader, _)]:
        writer.close()
        await asyncio.wait_for(one.ended, SECONDS)
        two.join(one)
        assert await asyncio.wait_for(reader.read(), SECONDS) == b""


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"no end", "closed before its first line"),
        (b"x" * (MAX_LINE_BYTES + 1), "too long"),
        (b"x" * MAX_LINE_BYTES + b"x\n", "too long"),
        (b"\xff\n", "no text"),
    ],
)
async def test_what_is_no_line(said: bytes, reason: str) -> None:
    async with _guests(1) as [(one, _, writer)]:
        writer.write(said)
        writer.close()
        with pytest.raises(ConnectionEnded, match=reason):
            await asyncio.wait_for(one.line(), SECONDS)


async def test_one_that_is_closed_in_the_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _guests(1) as [(one, _, _)]:
        monkeypatch.setattr(asyncio.get_running_loop(), "start_tls", AsyncMock(return_value=None))
        with pytest.raises(ConnectionEnded, match="in the handshake"):
            await one.secure(ssl.create_default_context(), SECONDS)


async def test_a_socket_of_this_host_has_no_peer(tmp_path: Path) -> None:
    made: asyncio.Queue[Connection] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(lambda: Connection(made.put_nowait), str(tmp_path / "socket"))
    _, far = await loop.create_unix_connection(Connection, str(tmp_path / "socket"))
    near = await made.get()
    assert near.peer == "this host"
    server.close()
    await _end(near, far)


async def test_they_end_together_and_who_comes_later_ends_at_once() -> None:
    connections = Connections()
    async with _guests(3) as guests:
        (one, _, writer), (two, reader, _), (late, late_reader, _) = guests
        assert connections.add(one)
        assert connections.add(two)
        writer.close()
        await asyncio.wait_for(one.ended, SECONDS)
        await asyncio.wait_for(connections.end(), SECONDS)
        assert two.ended.done()
        assert not connections.add(late)
        for each in (reader, late_reader):
            assert await asyncio.wait_for(each.read(), SECONDS) == b""


async def test_it_is_secured_before_anything_is_read(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.pair("server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.cert, pair.key)
    trusting = ssl.create_default_context(cafile=str(authority.path))

    async def shake(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        writer.write(b"in secret\n")
        answer = await reader.read()
        writer.close()
        return answer

    async with _listening(is_secured=True) as (port, made):
        shaking = asyncio.create_task(shake(port))
        one = await made.get()
        await one.secure(context, SECONDS)
        assert await asyncio.wait_for(one.line(), SECONDS) == "in secret"
        one.write(b"heard")
        one.close()
        assert await asyncio.wait_for(shaking, SECONDS) == b"heard"

        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(ConnectionEnded, match="no TLS"):
            await (await made.get()).secure(context, SECONDS)
        writer.close()

        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        with pytest.raises(ConnectionEnded, match=r"no TLS|in the handshake"):
            await (await made.get()).secure(context, SECONDS)


@pytest.mark.parametrize("how", ["silence", "reset", "aborted here", "cancelled"])
async def test_a_handshake_that_comes_to_nothing_is_the_end(tmp_path: Path, how: str) -> None:
    """What waits for the end of all connections waits for this one, too."""
    pair = Authority(tmp_path).pair("server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.cert, pair.key)
    async with _listening(is_secured=True) as (port, made):
        with socket.create_connection(("127.0.0.1", port)) as client:
            one = await made.get()
            securing = asyncio.create_task(one.secure(context, 0.1 if how == "silence" else SECONDS))
            await asyncio.sleep(0)
            if how == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
            elif how == "aborted here":
                one.abort()
            elif how == "cancelled":
                securing.cancel()
            with pytest.raises((ConnectionEnded, asyncio.CancelledError)):
                await asyncio.wait_for(securing, SECONDS)
            await asyncio.wait_for(one.ended, SECONDS)
