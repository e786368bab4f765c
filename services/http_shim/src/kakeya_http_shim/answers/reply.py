"""What goes back to the client of one request: a whole answer, or a stream of events."""

import asyncio
from collections.abc import Callable, Mapping

from starlette.types import Scope, Send

from kakeya_http_shim import error_shapes
from kakeya_http_shim.answers.stream_events import framed
from kakeya_http_shim.problems import ApiError

_EVENTS, _LINES = b"text/event-stream; charset=utf-8", b"application/x-ndjson"
_STREAM_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would gather the events
)


class Reply:
    """The answer of one request, as ASGI sends it.

    Args:
        scope: of the request; errors and streams are in the shape of the API that it asked.

    Attributes:
        is_begun: a status has been sent; what fails now can only be said in the stream.
        headers: of an answer that is given, beside those of its form.
        last_events: what a stream that fails says in the end; None: as all of its API say an error.
    """

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._shape = error_shapes.shape_of(scope)
        self._send = send
        self._sending = asyncio.Lock()
        self._is_over = False
        self._last_sent_at = 0.0
        self.is_begun = False
        self.headers: dict[str, str] = {}
        self.last_events: Callable[[ApiError], bytes] | None = None

    @property
    def facts(self) -> dict[str, str | int]:
        """What the request's line in the log says beside: counts and ids, never what was said."""
        facts: dict[str, str | int] = self._scope.setdefault("state", {}).setdefault("facts", {})
        return facts

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

    async def failure(self, error: ApiError) -> None:
        """The error, as answer or as the last event of a stream; nothing where the answer is over."""
        if self._is_over:
            return
        body = error_shapes.body(error, self._scope)
        if self.is_begun and self.last_events is not None:
            await self.stream(self.last_events(error), is_last=True)
        elif self.is_begun:
            said = body + b"\n" if self._shape.is_line else framed(body, self._shape.event)
            await self.stream(said, is_last=True)
        else:
            await self.whole(body, error.status, error.header_items())

    async def stream(self, data: bytes, *, is_last: bool = False) -> None:
        """Events, framed, or none yet. The first call begins the stream."""
        async with self._sending:
            if not self.is_begun:
                media_type = (b"content-type", _LINES if self._shape.is_line else _EVENTS)
                await self._begin(200, [media_type, *_STREAM_HEADERS, *_encoded(self.headers)])
            if data or is_last:
                await self._say(data, is_last=is_last)

    async def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._last_sent_at = asyncio.get_running_loop().time()
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        self.is_begun = True

    async def _say(self, data: bytes, *, is_last: bool) -> None:
        self._last_sent_at = asyncio.get_running_loop().time()
        self._is_over = is_last
        await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]
