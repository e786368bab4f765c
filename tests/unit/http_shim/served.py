"""An ASGI app on a real socket, and a client that says exactly what it is told to."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from kakeya_http_shim.server.listener import listening
from kakeya_shared.settings.addresses import HostPort


@dataclass(frozen=True)
class Answer:
    """What came back; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of an error in OpenAI's shape."""
        error = self.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return str(error["code"])


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, text: str | bytes) -> None:
        self.writer.write(text.encode() if isinstance(text, str) else text)
        await self.writer.drain()

    async def get(self, path: str = "/", method: str = "GET", headers: str = "") -> Answer:
        await self.send(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n")
        return await self.answer(has_body=method != "HEAD")

    async def answer(self, has_body: bool = True) -> Answer:
        status, headers = await self.head()
        return Answer(status, headers, await self._body(headers) if has_body else b"")

    async def head(self) -> tuple[int, dict[str, str]]:
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        pairs = [line.partition(":") for line in lines]
        return int(first.split()[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}

    async def chunk(self) -> bytes:
        """One chunk; empty: the last one."""
        size = int(await self.reader.readuntil(b"\n"), 16)  # raises where the connection ends
        return (await self.reader.readexactly(size + 2))[:-2]

    async def is_closed(self) -> bool:
        """Whether the server says no more; waits for it. What it says is lost."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionResetError:
            return True

    async def leave(self) -> None:
        """Closes the connection."""
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except (ConnectionResetError, BrokenPipeError):
            return

    async def _body(self, headers: dict[str, str]) -> bytes:
        if "content-length" in headers:
            return await self.reader.readexactly(int(headers["content-length"]))
        if headers.get("transfer-encoding") != "chunked":
            return await self.reader.read()
        body = b""
        while chunk := await self.chunk():
            body += chunk
        return body


@asynccontextmanager
async def served(app: ASGIApp, **how: Any) -> AsyncIterator[HostPort]:
    """`app` on a free port of this host."""
    async with listening(app, "127.0.0.1:0", **{"grace_seconds": 0.0, **how}) as address:
        yield address


@asynccontextmanager
async def connected(address: HostPort, **how: Any) -> AsyncIterator[RawClient]:
    client = RawClient(*await asyncio.open_connection(*address, **how))
    try:
        yield client
    finally:
        await client.leave()


@asynccontextmanager
async def raw_client(app: ASGIApp, **how: Any) -> AsyncIterator[RawClient]:
    """One client of `app`."""
    async with served(app, **how) as address, connected(address) as client:
        yield client


async def answer(send: Send, body: bytes = b"hello", status: int = 200, **headers: str) -> None:
    """A whole answer."""
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*pairs, length]})
    await send({"type": "http.response.body", "body": body})


async def read_body(receive: Receive) -> bytes:
    """The whole body of a request; ConnectionError where its client leaves before."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError
        body += message["body"]
        if not message["more_body"]:
            return body


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers a request with its body, or its path where it has none."""
    body = await read_body(receive)
    await answer(send, body or scope["path"].encode())


async def eventually(holds: Callable[[], bool]) -> None:
    """Returns as soon as it holds; fails after a minute."""
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.001)
