"""A TCP link that can be cut: what a broken network looks like to a client."""

import socket
import threading
from contextlib import suppress


class CuttableLink:
    """Forwards connections to a port of this host until they are cut; new ones may come afterwards."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Breaks every connection there is."""
        with self._lock:
            for end in self._sockets:
                with suppress(OSError):  # the other side was faster
                    end.shutdown(socket.SHUT_RDWR)
            self._sockets.clear()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            server = socket.create_connection(("127.0.0.1", self._port))
            with self._lock:
                self._sockets |= {client, server}
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65_536):
                target.sendall(data)
        except OSError:
            pass  # cut in the middle
        finally:
            with self._lock:
                for end in (source, target):
                    self._sockets.discard(end)
                    end.close()
