"""A proxy before an HTTP shim that remembers what clients sent and what they were told of their sessions."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from tests.integration.processes import LONG_SECONDS

_CHATS = ("/chat/completions", "/responses", "/v1/messages", "/api/chat")
_OF_ONE_HOP = ("connection", "transfer-encoding", "keep-alive", "content-length", "host", "date", "server")
_PIECE = 1 << 16


@dataclass(frozen=True)
class Exchange:
    """A chat request and how it was answered.

    Attributes:
        session: the header, its first word as `state`; empty of a refusal.
        refusal: the answer of what was refused.
    """

    body: dict[str, Any]
    status: int
    session: dict[str, str]
    refusal: str = ""

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

    @property
    def num_prompt_tokens(self) -> int:
        """Of the conversation before its answer."""
        return self.num_reused + self.num_appended


@dataclass
class Recorder:
    """What came through.

    Attributes:
        address: where clients come in.
        director: is told of each chat before its model is asked, of one after the other; None where nobody has to be.
    """

    address: str
    director: Callable[[dict[str, Any]], None] | None = None
    _exchanges: list[Exchange] = field(default_factory=list)
    _asked: list[str] = field(default_factory=list)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def asked(self) -> list[str]:
        """What was asked for since it was asked last, each as `METHOD path`."""
        asked, self._asked = self._asked, []
        return asked

    def note(self, method: str, path: str) -> None:
        """A request has come."""
        self._asked.append(f"{method} {path}")

    @contextmanager
    def turn(self, body: bytes) -> Iterator[None]:
        """While a chat is answered: the director knows of it, and no other one is answered."""
        if self.director is None:
            yield
            return
        with self._turn:
            self.director(json.loads(body))
            yield

    def take(self) -> list[Exchange]:
        """The chats since it was asked last, in their order."""
        taken, self._exchanges = self._exchanges, []
        return taken

    def add(self, body: bytes, response: HTTPResponse, refusal: bytes) -> None:
        """One more."""
        state, *pairs = response.headers.get("kakeya-session", "").split("; ")
        session = {"state": state, **dict(pair.split("=", 1) for pair in pairs)} if state else {}
        self._exchanges.append(Exchange(json.loads(body), response.status, session, refusal.decode()))


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

    def do_HEAD(self) -> None:
        self._pass_on(b"")

    def do_POST(self) -> None:
        self._pass_on(self.rfile.read(int(self.headers.get("content-length", 0))))

    def _pass_on(self, body: bytes) -> None:
        self.made.note(self.command, self.path)
        is_chat = self.path.partition("?")[0].endswith(_CHATS)
        turn: AbstractContextManager[None] = self.made.turn(body) if is_chat else nullcontext()
        connection = HTTPConnection(self.target, timeout=LONG_SECONDS)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _OF_ONE_HOP}
        try:
            with turn:
                connection.request(self.command, self.path, body, headers)
                self._answer(connection.getresponse(), body if is_chat else None)
        finally:
            connection.close()

    def _answer(self, response: HTTPResponse, chat: bytes | None) -> None:
        refusal = response.read() if response.status >= HTTPStatus.BAD_REQUEST else b""
        if chat is not None:  # before the client has any of it, and looks: some do not wait for the end
            self.made.add(chat, response, refusal)
        self.send_response(response.status)
        for name, value in response.headers.items():
            if name.lower() not in _OF_ONE_HOP:
                self.send_header(name, value)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        if refusal:
            self._send(refusal)
        while piece := response.read1(_PIECE):
            self._send(piece)
        if self.command != "HEAD":
            self._send(b"")

    def _send(self, piece: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.flush()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: what matters is remembered."""
