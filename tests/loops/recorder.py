"""A proxy before an HTTP shim that remembers what clients sent and what they were told of their sessions."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from tests.integration.processes import LONG_SECONDS

_CHAT = "/chat/completions"
_OF_ONE_HOP = ("connection", "transfer-encoding", "keep-alive", "content-length", "host", "date", "server")
_PIECE = 1 << 16


@dataclass(frozen=True)
class Exchange:
    """A chat request and how it was answered.

    Attributes:
        session: the header, its first word as `state`; empty of a refusal.
    """

    body: dict[str, Any]
    status: int
    session: dict[str, str]

    @property
    def state(self) -> str:
        return self.session.get("state", "refused")

    @property
    def why(self) -> str:
        return self.session.get("why", f"status {self.status}")

    @property
    def num_appended(self) -> int:
        return int(self.session["appended"])

    @property
    def num_reused(self) -> int:
        return int(self.session["reused"])


@dataclass
class Recorder:
    """What came through.

    Attributes:
        address: where clients come in.
    """

    address: str
    _exchanges: list[Exchange] = field(default_factory=list)

    def take(self) -> list[Exchange]:
        """The chats since it was asked last, in their order."""
        taken, self._exchanges = self._exchanges, []
        return taken

    def add(self, body: bytes, response: HTTPResponse) -> None:
        """One more."""
        state, *pairs = response.headers.get("kakeya-session", "").split("; ")
        session = {"state": state, **dict(pair.split("=", 1) for pair in pairs)} if state else {}
        self._exchanges.append(Exchange(json.loads(body), response.status, session))


@contextmanager
def recorder(shim: str) -> Iterator[Recorder]:
    """Before a shim's address."""

    class Handler(_Handler):
        target = shim

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        host, port = server.server_address[:2]
        Handler.made = Recorder(f"{host!s}:{port}")
        serving = threading.Thread(target=server.serve_forever, name="recorder")
        serving.start()
        try:
            yield Handler.made
        finally:
            server.shutdown()
            serving.join()


class _Handler(BaseHTTPRequestHandler):
    """Passes a request on, and its answer back as it comes."""

    protocol_version = "HTTP/1.1"
    timeout = LONG_SECONDS
    target: ClassVar[str]
    made: ClassVar[Recorder]

    def do_GET(self) -> None:
        self._pass_on(b"")

    def do_POST(self) -> None:
        self._pass_on(self.rfile.read(int(self.headers.get("content-length", 0))))

    def _pass_on(self, body: bytes) -> None:
        connection = HTTPConnection(self.target, timeout=LONG_SECONDS)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _OF_ONE_HOP}
        try:
            connection.request(self.command, self.path, body, headers)
            response = connection.getresponse()
            self.send_response(response.status)
            for name, value in response.headers.items():
                if name.lower() not in _OF_ONE_HOP:
                    self.send_header(name, value)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            while piece := response.read1(_PIECE):
                self._send(piece)
            if self.path.endswith(_CHAT):  # before the client has all of it, and looks
                self.made.add(body, response)
            self._send(b"")
        finally:
            connection.close()

    def _send(self, piece: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.flush()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: what matters is remembered."""
