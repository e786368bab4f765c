"""One client's connection: uvicorn's HTTP/1.1, with limits to what a client may do to it."""

import asyncio
import sys
import time
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from kakeya_http_shim import error_shapes
from kakeya_http_shim.middleware import request_ids
from kakeya_http_shim.problems import ApiError, internal, unavailable
from kakeya_http_shim.server.watched_transport import WatchedTransport

MAX_HEAD_BYTES = 64 << 10
_READ_BYTES = 16 << 10
"""What is read, and taken apart, at a time: h11 takes 30 ms for it at worst, and others want to be served too."""
_CLOSE = (b"connection", b"close")
_VERSIONS = frozenset({"1.0", "1.1"})


@dataclass(frozen=True)
class ConnectionLimits:
    """What clients may do: the flags of the same names say what each is for."""

    head_timeout_seconds: float = 30.0
    send_timeout_seconds: float = 60.0
    connection_idle_seconds: float = 75.0
    max_connections: int = 4096


class Connection(H11Protocol, asyncio.BufferedProtocol):
    """uvicorn's connection, which by itself would

    - wait for ever for the rest of a head: here a slow one gets a 408;
    - stop reading when a client sends more after its request, and then not see it leave: here that is dropped, and
      the connection closes after the answer;
    - take apart 256 KiB at a time, in which may be 40,000 chunks: here it is 16 KiB;
    - read for ever what follows a request that is answered before its end: here the connection closes then;
    - answer with plain text where there is no request or the app failed: here it is OpenAI's JSON;
    - wait for ever for a client that does not read: see `WatchedTransport`.

    Args:
        stopping: set when the server is to stop.

    Attributes:
        closed: done when the connection is gone.
    """

    def __init__(self, config: Config, state: ServerState, limits: ConnectionLimits, stopping: asyncio.Event) -> None:
        super().__init__(config, state, {}, asyncio.get_running_loop())
        self._limits = limits
        self._stopping = stopping
        self._served_app: ASGIApp = config.loaded_app
        self.app = self._run
        self._head_timer: asyncio.TimerHandle | None = None
        self._has_head_begun = False
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._watched: WatchedTransport = None  # type: ignore[assignment]  # until the connection is made
        self.cycle: RequestResponseCycle | None = None  # type: ignore[assignment]  # there is none at first
        self.closed: asyncio.Future[None] = self.loop.create_future()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        self._watched = WatchedTransport(transport, self.loop, self._limits.send_timeout_seconds)
        super().connection_made(self._watched)
        num_connections = len(self.connections)
        if self._stopping.is_set() or num_connections > 2 * self._limits.max_connections:
            self._watched.abort()
        elif num_connections > self._limits.max_connections:
            self._refuse(unavailable("too many connections", "too_many_connections"))
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._watched.unwatch()
        self._end_head()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        self.closed.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        if not self._watched.is_closing():
            self._take(data)

    def handle_events(self) -> None:
        cycle = self.cycle
        super().handle_events()
        if self.cycle is not cycle:
            self._end_head()
        if self._is_answering():
            if self.conn.trailing_data[0]:
                self._drop()
            self.flow.resume_reading()  # only so will a client be seen to leave

    def send_400_response(self, msg: str) -> None:
        """What uvicorn calls where it handles h11's word that this is no request."""
        error = sys.exception()
        status = getattr(error, "error_status_hint", 400)
        self._refuse(ApiError(status, f"not valid HTTP: {error}", code="invalid_http"))

    def shutdown(self) -> None:
        """Closes the connection, after the answer that is under way."""
        if self._is_idle():
            self._watched.close()
        else:
            self.cycle.keep_alive = False  # type: ignore[union-attr]  # there is one

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watched.watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self._watched.is_closing():
            self._watched.unwatch()

    def _should_upgrade(self) -> bool:
        return False  # without uvicorn's warning: strangers may ask for what they like

    def _is_idle(self) -> bool:
        """Whether a request may begin."""
        return self.cycle is None or self.cycle.response_complete

    def _is_answering(self) -> bool:
        """Whether there is a whole request and not yet its whole answer."""
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    def _take(self, piece: bytes) -> None:
        if self._is_answering():
            self._drop()
            return
        if self._is_idle() and not self._has_head_begun:
            piece = piece.lstrip(b"\r\n")  # some clients end a body with a line that is not part of it
            if not piece:
                return
            self._has_head_begun = True
            self._await_head()
        super().data_received(piece)

    def _drop(self) -> None:
        """The client does not wait for its answer: what it sends is not kept, and this answer is the last."""
        self._watched.client_sends = True
        self.cycle.keep_alive = False  # type: ignore[union-attr]  # there is one

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._limits.head_timeout_seconds, self._head_is_late)

    def _end_head(self) -> None:
        self._has_head_begun = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        if self._has_head_begun:
            self._refuse(ApiError(408, "the request came too slowly", code="request_timeout"))
        else:
            self._watched.close()

    def _refuse(self, error: ApiError) -> None:
        """The last answer of this connection, in place of the app's where that has not begun."""
        self._end_head()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self._watched.abort()
                return
        self._watched.client_sends = True
        self._watched.write(_on_the_wire(error))
        self._watched.close()

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The app, with the headers of the connection and an answer to what it raises."""
        cycle: RequestResponseCycle = self.cycle  # type: ignore[assignment]  # the one that runs this

        async def send_with_headers(message: Message) -> None:
            self._watched.hold()
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *self._headers(cycle)]}
                if _tells_length(message):
                    self.loop.call_soon(self._watched.release)  # with what there is of the body by then
                    await send(message)
                    return
            try:
                await send(message)
            finally:
                self._watched.release()  # a stream's head, too: its client reads it while the first event is made

        try:
            await self._app_of(scope)(scope, receive, send_with_headers)
        except asyncio.CancelledError:
            # The server's time is over. This is the end of the task; uvicorn would log it as a failure of the app.
            await self._cut(cycle, scope, receive, send_with_headers)
        except Exception:
            if not cycle.response_started:
                await _answer(internal(), scope)(scope, receive, send_with_headers)
            raise  # uvicorn logs it

    def _app_of(self, scope: Scope) -> ASGIApp:
        if scope["http_version"] in _VERSIONS:
            return self._served_app
        self._drop()  # such as the preface of HTTP/2, after which comes no HTTP that this server knows
        return _answer(ApiError(505, "only HTTP/1.1 is served here", code="invalid_http"), scope)

    def _headers(self, cycle: RequestResponseCycle) -> list[tuple[bytes, bytes]]:
        if cycle.more_body:
            self._watched.client_sends = True
            cycle.keep_alive = False
        date = _date()
        return [date] if cycle.keep_alive else [date, _CLOSE]

    async def _cut(self, cycle: RequestResponseCycle, scope: Scope, receive: Receive, send: Send) -> None:
        if cycle.response_started:
            cycle.disconnected = True
            self._watched.abort()
        else:
            await _answer(unavailable("the server is stopping", "stopping"), scope)(scope, receive, send)


def _tells_length(head: Message) -> bool:
    return any(name == b"content-length" for name, _ in head["headers"])


def _date() -> tuple[bytes, bytes]:
    return b"date", _written(int(time.time()))


@lru_cache(1)
def _written(seconds: int) -> bytes:
    """Many answers a second have the same date."""
    return formatdate(seconds, usegmt=True).encode()


def _answer(error: ApiError, scope: Scope) -> Response:
    """The connection's own, with the request's name where it got one."""
    response = error_shapes.response(error, scope)
    response.headers[request_ids.HEADER] = scope.get("state", {}).get("request_id") or request_ids.new_id()
    return response


def _on_the_wire(error: ApiError) -> bytes:
    """The answer to what is no request."""
    response = _answer(error, {})
    headers = [*response.raw_headers, _date(), _CLOSE]
    status = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}".encode()
    head = b"\r\n".join([status, *(name + b": " + value for name, value in headers)])
    return head + b"\r\n\r\n" + bytes(response.body)
