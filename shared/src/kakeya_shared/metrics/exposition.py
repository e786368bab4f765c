"""GET /metrics over HTTP, on a port of its own and in threads of its own: a reader holds up no call."""

import asyncio
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from socketserver import TCPServer
from types import TracebackType
from typing import Any, Self
from wsgiref.simple_server import WSGIRequestHandler
from wsgiref.types import StartResponse, WSGIEnvironment

import structlog
from prometheus_client.exposition import ThreadingWSGIServer

from kakeya_shared.metrics.meters import Meters
from kakeya_shared.settings.addresses import NOWHERE, HostPort, is_loopback

_log = structlog.get_logger()

_PATH = "/metrics"
# Of a reader that says nothing, or does not read on; Prometheus itself gives up after ten by default.
_SILENCE_SECONDS = 10.0
# How often its thread looks whether it is to end. A service waits for that with its own end; a look takes microseconds.
_LOOK_SECONDS = 0.05


class ExpositionError(Exception):
    """The address cannot be listened on."""


class Exposition:
    """Serves meters until it is left; use as a context manager.

    Args:
        bind: HOST:PORT, where port 0 takes a free one; "none" serves nothing.

    Attributes:
        address: what is listened on, with the real port, once entered; "" for nothing.
    """

    def __init__(self, meters: Meters, bind: str) -> None:
        self._meters = meters
        self._bind = None if bind == NOWHERE else HostPort.parse(bind)
        self._server: _Server | None = None
        self.address = ""

    async def __aenter__(self) -> Self:
        """Raises ExpositionError."""
        if self._bind is None:
            return self
        try:
            self._server = _Server(self._bind, self._answer)
        except OSError as error:
            raise ExpositionError(f"cannot serve metrics on {self._bind}: {error.strerror}") from error
        self.address = str(HostPort(self._bind.host, self._server.server_port))
        threading.Thread(target=self._server.serve_forever, args=(_LOOK_SECONDS,), name="metrics", daemon=True).start()
        if not is_loopback(self._bind.host):
            _log.warning("metrics are served in plaintext to every host that reaches their port", metrics=self.address)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            await asyncio.to_thread(self._server.shutdown)
            self._server.server_close()

    def _answer(self, environment: WSGIEnvironment, begin: StartResponse) -> list[bytes]:
        status, media_type, content = self._content(environment)
        begin(f"{status.value} {status.phrase}", [("Content-Type", media_type), ("Content-Length", str(len(content)))])
        return [content]

    def _content(self, environment: WSGIEnvironment) -> tuple[HTTPStatus, str, bytes]:
        if environment["PATH_INFO"] != _PATH:
            return HTTPStatus.NOT_FOUND, "text/plain", f"see {_PATH}\n".encode()
        if environment["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"GET only\n"
        content, media_type = self._meters.exposition(environment.get("HTTP_ACCEPT", ""))
        return HTTPStatus.OK, media_type, content


class _Handler(WSGIRequestHandler):
    timeout = _SILENCE_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a reader comes every few seconds."""


class _Server(ThreadingWSGIServer):
    """Without the look into the name service by which http.server wants to know what its host is called."""

    def __init__(self, bind: HostPort, application: Callable[[WSGIEnvironment, StartResponse], list[bytes]]) -> None:
        self.address_family = socket.getaddrinfo(bind.host, bind.port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((bind.host, bind.port), _Handler)
        self.set_app(application)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]  # of IP they are these
        self.setup_environ()
