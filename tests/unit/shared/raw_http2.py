"""A call by hand, over HTTP/2 frames, with header values that gRPC's clients do not let out."""

import asyncio
import struct
from collections.abc import Mapping

from kakeya_shared.settings.addresses import HostPort

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _GOAWAY = 0, 1, 3, 4, 7
_END_STREAM, _END_HEADERS = 1, 4


async def answer(address: str, method: str, metadata: Mapping[bytes, bytes]) -> bytes:
    """Calls with an empty message; the headers of the answer as they come over the wire, or the frame that refuses."""
    host, port = HostPort.parse(address)
    reader, writer = await asyncio.open_connection(host, port)
    headers = {b":method": b"POST", b":scheme": b"http", b":path": method.encode(), b":authority": b"x"}
    headers |= {b"content-type": b"application/grpc", b"te": b"trailers"} | dict(metadata)
    block = b"".join(b"\0" + _text(name) + _text(value) for name, value in headers.items())
    writer.write(_PREFACE + _frame(_SETTINGS, 0, 0, b""))
    writer.write(_frame(_HEADERS, _END_HEADERS, 1, block) + _frame(_DATA, _END_STREAM, 1, bytes(5)))
    try:
        async with asyncio.timeout(60):
            return await _until_answered(reader)
    finally:
        writer.close()


async def _until_answered(reader: asyncio.StreamReader) -> bytes:
    while True:
        size, kind = struct.unpack(">3sB", (head := await reader.readexactly(9))[:4])
        content = await reader.readexactly(int.from_bytes(size, "big"))
        if kind in (_HEADERS, _RST_STREAM, _GOAWAY):
            return head + content


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + content


def _text(text: bytes) -> bytes:
    """A literal of HPACK without Huffman coding."""
    if len(text) < 127:
        return bytes([len(text)]) + text
    assert len(text) < 127 + 128
    return bytes([127, len(text) - 127]) + text
