"""What goes back to the client of one request: a whole answer, or a stream of events."""

import asyncio
from collections.abc import Mapping

from starlette.types import Send

from kakeya_http_shim.problems import ApiError

_COMMENT = b": keep-alive\n\n"
_DONE = b"data: [DONE]\n\n"
_STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would gather the events
)


class Reply:
    """The answer of one request, as ASGI sends it.

    Attributes:
        is_begun: a status has been sent; what fails now can only be said in the stream.
        headers: of an answer that is given, beside those of its form.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._sending = asyncio.Lock()
        self._is_over = False
        self._last_sent_at = 0.0
        self.is_begun = False
        self.headers: dict[str, str] = {}

    @property
    def silent_seconds(self) -> float:
        """Since the stream last said something."""
        return asyncio.get_running_loop().time() - self._last_sent_at

    async def whole(self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """The whole answer, as JSON; None: with the headers of an answer that is given."""
        length = (b"content-length", str(len(body)).encode())
        given = _encoded(self.headers if headers is None else headers)
        await self._begin(status, [(b"content-type", b"application/json"), length, *given])
        await self._say(body, is_last=True)

    async def event(self, data: bytes) -> None:
        """One event; the first begins the stream."""
        await self._stream(b"data: " + data + b"\n\n")

    async def comment(self) -> None:
        """A sign of life, which clients do not notice."""
        await self._stream(_COMMENT)

    async def done(self) -> None:
        """The end of a stream."""
        await self._stream(_DONE, is_last=True)

    async def failure(self, error: ApiError) -> None:
        """The error, as answer or as the last event of a stream; nothing where the answer is over."""
        response = error.response()
        if self._is_over:
            return
        if self.is_begun:
            await self._stream(b"data: " + bytes(response.body) + b"\n\n", is_last=True)
        else:
            await self.whole(bytes(response.body), error.status, error.header_items())

    async def _stream(self, data: bytes, *, is_last: bool = False) -> None:
        async with self._sending:
            if not self.is_begun:
                await self._begin(200, [*_STREAM_HEADERS, *_encoded(self.headers)])
            await self._say(data, is_last=is_last)

    async def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        self.is_begun = True

    async def _say(self, data: bytes, *, is_last: bool) -> None:
        self._last_sent_at = asyncio.get_running_loop().time()
        self._is_over = is_last
        await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]
