"""A link between processes that fails as networks do: it breaks, or it takes everything and passes on nothing."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.ports import free_port


class FaultyLink:
    """Forwards connections to an address of this host. Use `faulty_link` to make one.

    Attributes:
        address: where to connect.
        target: where connections go from now on.
    """

    def __init__(self, target: str = "") -> None:
        self.target = target
        self.address = f"127.0.0.1:{free_port()}"
        self._host, _, port = self.address.partition(":")
        self._listener = socket.create_server((self._host, int(port)), backlog=256)
        self._ends = set[socket.socket]()
        self._lock = threading.Lock()
        self._passes = threading.Event()
        self._passes.set()
        self._is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Breaks all connections, and refuses others."""
        self._is_cut = True
        self._break()

    def silence(self) -> None:
        """Passes on nothing; what is sent meanwhile arrives when it is mended."""
        self._passes.clear()

    def mend(self) -> None:
        self._is_cut = False
        self._passes.set()

    def close(self) -> None:
        self.mend()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._break()

    def _break(self) -> None:
        with self._lock:
            for end in self._ends:
                with suppress(OSError):  # the other side was faster
                    end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        self._passes.wait()
        if self._is_cut:
            client.close()
            return
        host, _, port = self.target.partition(":")
        try:
            server = socket.create_connection((host, int(port)))
        except OSError:
            client.close()
            return
        with self._lock:
            self._ends |= {client, server}
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while content := source.recv(65_536):
                self._passes.wait()
                sink.sendall(content)
        except OSError:
            pass  # cut in the middle
        finally:
            with self._lock:
                for end in (source, sink):
                    self._ends.discard(end)
                    end.close()


@contextmanager
def faulty_link(target: str = "") -> Iterator[FaultyLink]:
    link = FaultyLink(target)
    try:
        yield link
    finally:
        link.close()
