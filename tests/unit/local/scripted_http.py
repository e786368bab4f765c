"""An HTTP server that gives the answers it was told to give."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from threading import Thread
from typing import Any

from kakeya_shared.settings.addresses import HostPort


@dataclass
class ScriptedHttp:
    """A status and a body for each request; the last one for ever.

    Attributes:
        requests: method and path, and the JSON that came.
    """

    address: HostPort
    answers: list[tuple[int, bytes]] = field(default_factory=lambda: [(200, b"")])
    requests: list[tuple[str, Any]] = field(default_factory=list)


@contextmanager
def scripted_http(tls: SSLContext | None = None) -> Iterator[ScriptedHttp]:
    """A server on a free port of loopback, until the end."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            given = self.rfile.read(int(self.headers.get("content-length", 0)))
            script.requests.append((f"{self.command} {self.path}", json.loads(given) if given else None))
            status, body = script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _answer  # noqa: N815  # as the library calls them

        def log_message(self, format: str, *arguments: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    script = ScriptedHttp(HostPort("127.0.0.1", server.server_address[1]))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
