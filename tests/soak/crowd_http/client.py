"""A client over bare connections, which it keeps: it costs next to nothing beside what it asks."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from kakeya_shared.settings.addresses import HostPort
from tests.soak.crowd_http.talk import Message, Told
from tests.unit.http_shim.served import RawClient

_ANSWER_SECONDS = 120.0
_MAX_BODY_BYTES = 1 << 20
_DONE = b"[DONE]"
_MAX_SHOWN = 300


class Refused(Exception):
    """An answer that is none; the message says what came."""


class Broken(Exception):
    """The server went away before the end of its answer.

    Args:
        num_events: that had come until then.
    """

    def __init__(self, num_events: int) -> None:
        super().__init__(f"after {num_events} events")
        self.num_events = num_events


def written(messages: Sequence[Message], **fields: Any) -> bytes:
    """A request for a chat, as it goes over the wire."""
    body = json.dumps({"messages": list(messages), **fields}).encode()
    names = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"POST /v1/chat/completions HTTP/1.1\r\n{names}\r\n\r\n".encode() + body


class Client:
    """Asks one thing after the other, any server. Use as a context manager."""

    def __init__(self) -> None:
        self._connections: dict[str, RawClient] = {}

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        for address in list(self._connections):
            await self._leave(address)

    async def exchange(self, address: str, request: bytes) -> tuple[Mapping[str, str], bytes]:
        """Headers and body of an answer. Raises Refused, Broken, TimeoutError."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                connection = await self._connected(address)
                await connection.send(request)
                answer = await connection.answer()
        except (OSError, EOFError) as error:
            await self._leave(address)
            raise Broken(0) from error
        if answer.status != 200:
            raise Refused(f"status {answer.status}: {answer.body[:_MAX_SHOWN]!r}")
        return answer.headers, answer.body

    async def plain(self, address: str, messages: Sequence[Message], **fields: Any) -> Told:
        """Raises as `exchange`."""
        headers, body = await self.exchange(address, written(messages, **fields))
        answer = json.loads(body)
        return Told.of(headers, answer["choices"][0]["message"]["content"], answer["usage"])

    async def streamed(
        self, address: str, messages: Sequence[Message], at_event: Callable[[], None], **fields: Any
    ) -> Told:
        """Raises as `exchange`.

        Args:
            at_event: is called when a piece of the answer has come.
        """
        request = written(messages, **fields, stream=True, stream_options={"include_usage": True})
        content, usage, num_events = "", dict[str, Any](), 0
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                connection = await self._connected(address)
                await connection.send(request)
                status, headers = await connection.head()
                if status != 200:
                    raise Refused(f"status {status} to a stream")
                async for event in _events(connection):
                    if "error" in event:
                        raise Refused(f"in a stream: {event['error']}")
                    num_events += 1
                    at_event()
                    content += "".join(choice["delta"].get("content") or "" for choice in event["choices"])
                    usage = event.get("usage") or usage
        except (OSError, EOFError) as error:
            await self._leave(address)
            raise Broken(num_events) from error
        except Refused:
            await self._leave(address)
            raise
        return Told.of(headers, content, usage)

    async def _connected(self, address: str) -> RawClient:
        if address in self._connections and self._connections[address].reader.at_eof():
            await self._leave(address)  # a server does not keep one for ever that nobody uses
        if address not in self._connections:
            streams = await asyncio.open_connection(*HostPort.parse(address), limit=_MAX_BODY_BYTES)
            self._connections[address] = RawClient(*streams)
        return self._connections[address]

    async def _leave(self, address: str) -> None:
        if (connection := self._connections.pop(address, None)) is not None:
            await connection.leave()


async def _events(connection: RawClient) -> AsyncIterator[dict[str, Any]]:
    """Up to the end of the stream."""
    rest = b""
    while chunk := await connection.chunk():
        *blocks, rest = (rest + chunk).split(b"\n\n")
        for block in blocks:
            data = block.removeprefix(b"data: ")
            if not block.startswith(b":") and data != _DONE:
                yield json.loads(data)
