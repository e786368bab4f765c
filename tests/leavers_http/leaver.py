"""A client over a bare socket that leaves in the midst of things."""

import asyncio
import socket
import struct
from collections import Counter
from dataclasses import dataclass, field

from tests.leavers_http.moments import AT_ANY_TIME, AT_END, IN_BODY, IN_HEAD, Leave

_READ_SECONDS = 60.0
_STREAM_END = b"0\r\n\r\n"
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, for no time
_MAX_SHOWN = 200


@dataclass
class Departures:
    """How the clients left.

    Attributes:
        counts: by moment, and whether a stream or a plain answer was asked for.
        mistakes: what came before they left and should not have.
    """

    counts: Counter[str] = field(default_factory=Counter)
    num_resets: int = 0
    mistakes: list[str] = field(default_factory=list)

    def note(self, leave: Leave) -> None:
        kind = "stream" if leave.streams else "plain"
        self.counts[f"{kind}, {leave.moment}"] += 1
        self.num_resets += leave.resets


async def leave_as_told(address: str, leave: Leave, whole_seconds: float, departures: Departures) -> None:
    """Args:
    whole_seconds: what a whole answer takes.
    """
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(leave.sent())
        await writer.drain()
        await _stay(reader, leave, whole_seconds)
        departures.note(leave)
    except (AssertionError, OSError, asyncio.IncompleteReadError, TimeoutError) as error:
        departures.mistakes.append(f"{leave}: {error!r}"[:_MAX_SHOWN])
    finally:
        _go(writer, resets=leave.resets)


async def _stay(reader: asyncio.StreamReader, leave: Leave, whole_seconds: float) -> None:
    if leave.moment in (IN_HEAD, IN_BODY):
        return
    if leave.moment == AT_ANY_TIME:
        await asyncio.sleep(leave.share * whole_seconds)
        return
    async with asyncio.timeout(_READ_SECONDS):
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        if leave.moment == AT_END:
            await _read_to_end(reader, head)
            return
        for _ in range(leave.num_events):
            event = await reader.readuntil(b"\n\n\r\n")
            assert b"data: " in event, event
            assert b'"error"' not in event, event
        await reader.readexactly(leave.num_bytes)


async def _read_to_end(reader: asyncio.StreamReader, head: bytes) -> None:
    """All but the connection's end."""
    if b"transfer-encoding: chunked" in head.lower():
        assert (await reader.readuntil(_STREAM_END)).endswith(b"data: [DONE]\n\n\r\n" + _STREAM_END)
        return
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.partition(b":")[2]))


def _go(writer: asyncio.StreamWriter, *, resets: bool) -> None:
    if resets:
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        writer.transport.abort()
    else:
        writer.close()
