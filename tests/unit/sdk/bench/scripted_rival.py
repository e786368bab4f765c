"""A server of completions for tests: real sockets, with faults on request.

Its model counts as that of the scripted runtime does: the next token is the last one plus one.
"""

import json
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.unit.sdk.scripted_runtime import VOCAB_SIZE

Answering = Callable[["Exchange"], None]


class Exchange(BaseHTTPRequestHandler):
    """One connection, and on it one request after the other."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "ScriptedRival"

    def do_POST(self) -> None:
        self.body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.paths.append(self.path)
        self.server.bodies.append(self.body)
        self.server.headers.append(dict(self.headers))
        self.server.ports.append(self.client_address[1])
        self.server.on_request()
        answer = self.server.answering.popleft() if self.server.answering else self.server.usual
        answer(self)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""

    def refuse(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def piece(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def event(self, document: Any) -> None:
        self.piece(b"data: " + json.dumps(document).encode() + b"\n\n")

    def end(self) -> None:
        self.piece(b"")

    def break_off(self) -> None:
        """The connection is gone, in the midst of what was said."""
        self.close_connection = True

    @property
    def answer(self) -> list[int]:
        """What the model says."""
        last = self.body["prompt"][-1]
        return [(last + 1 + number) % VOCAB_SIZE for number in range(self.body["max_tokens"])]


def says_ids(exchange: Exchange) -> None:
    """As vLLM does."""
    exchange.begin()
    answer = exchange.answer
    for token_id in answer:
        exchange.event({"choices": [{"text": f"{token_id} ", "token_ids": [token_id], "finish_reason": None}]})
    exchange.event({"choices": [{"text": "", "token_ids": [], "finish_reason": "length"}]})
    exchange.event({"choices": [], "usage": {"completion_tokens": len(answer)}})
    exchange.piece(b"data: [DONE]\n\n")
    exchange.end()


def says_texts(exchange: Exchange) -> None:
    """Only what OpenAI's API has."""
    exchange.begin()
    for token_id in exchange.answer:
        exchange.event({"choices": [{"text": f"{token_id} ", "finish_reason": None}]})
    exchange.piece(b"data: [DONE]\n\n")
    exchange.end()


def refuses(status: int, body: bytes) -> Answering:
    return lambda exchange: exchange.refuse(status, body)


class ScriptedRival(ThreadingHTTPServer):
    """Serves until `stop`.

    Attributes:
        bodies, paths, headers, ports: of the requests, in order; ports are the clients'.
        answering: what becomes of the next requests.
        usual: what becomes of the others.
        on_request: called before each is answered.
    """

    daemon_threads = False  # they are waited for: none of them outlives its test

    def __init__(self, usual: Answering = says_ids, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.ports: list[int] = []
        self.answering: deque[Answering] = deque()
        self.usual = usual
        self.on_request: Callable[[], None] = lambda: None
        self.port = self.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves early is what some tests are about."""

    @property
    def prompts(self) -> list[list[int]]:
        return [body["prompt"] for body in self.bodies]

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


@contextmanager
def scripted_rival(usual: Answering = says_ids, tls: ssl.SSLContext | None = None) -> Iterator[ScriptedRival]:
    rival = ScriptedRival(usual, tls)
    try:
        yield rival
    finally:
        rival.stop()
