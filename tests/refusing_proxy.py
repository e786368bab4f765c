"""An HTTP proxy that connects nobody, as a company's does where the way is not through it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest


class RefusingProxy:
    """Answers every request with 403.

    Attributes:
        url: for `http_proxy`.
        requests: the first line of each request.
    """

    def __init__(self, listener: socket.socket) -> None:
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.requests: list[str] = []
        self._listener = listener

    def serve(self) -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                with connection, suppress(OSError):
                    connection.settimeout(60)
                    self.requests.append(connection.recv(4096).decode(errors="replace").partition("\r\n")[0])
                    connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")


@contextmanager
def refusing_proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[RefusingProxy]:
    """One that runs, and is the environment's for gRPC and everybody else, without exceptions."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = RefusingProxy(listener)
        thread = threading.Thread(target=proxy.serve, daemon=True)
        thread.start()
        for name in ("no_grpc_proxy", "no_proxy", "NO_PROXY", "grpc_proxy"):
            monkeypatch.delenv(name, raising=False)
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        try:
            yield proxy
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(timeout=30)
