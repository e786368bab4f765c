"""One side of a tunnelled connection: its bytes are copied to the other side, and the kernel's flow control holds."""

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

# Of what came before the connection was joined: a server's first frames. More waits in the kernel.
_MAX_HELD_BYTES = 65_536
# A connection that is written to faster than it is read stops the other side's reading at this.
_MAX_WAITING_BYTES = 262_144

MAX_LINE_BYTES = 512


async def close_server(server: asyncio.Server) -> None:
    """Whom it has just accepted is let in: once it is closed, asyncio (of Python 3.11) forgets that socket."""
    for listening in server.sockets:
        asyncio.get_running_loop().remove_reader(listening.fileno())
    await asyncio.sleep(0)
    server.close()


class ConnectionEnded(Exception):
    """The other side has closed it, or has sent what does not belong there."""


class Connection(asyncio.Protocol):
    """A protocol of asyncio's. What is received before `join` is held.

    Args:
        on_made: told once the connection stands.
        is_secured: `secure` is called next; nothing is read before.

    Attributes:
        ended: done when the connection is over.
    """

    def __init__(self, on_made: Callable[["Connection"], object] | None = None, *, is_secured: bool = False) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_made = on_made
        self._is_secured = is_secured
        self._held = bytearray()
        self._more = asyncio.Event()
        self._other: Connection | None = None
        self._transport: asyncio.Transport

    @property
    def peer(self) -> str:
        """Where it comes from, for logs."""
        name = self._transport.get_extra_info("peername")
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "this host"

    async def secure(self, context: ssl.SSLContext, seconds: float) -> None:
        """Makes the handshake of a TLS server. Raises ConnectionEnded: there was none within so many seconds."""
        loop, transport = asyncio.get_running_loop(), None
        try:
            transport = await loop.start_tls(
                self._transport, self, context, server_side=True, ssl_handshake_timeout=seconds
            )
        except (TimeoutError, OSError) as error:  # ssl.SSLError is an OSError
            raise ConnectionEnded(f"no TLS: {error}") from error
        finally:
            if transport is None:
                # asyncio does not always tell a protocol that its connection was lost in the midst of a handshake.
                self.abort()
                self.connection_lost(None)
        if transport is None:
            raise ConnectionEnded("it was closed in the handshake")
        self._begin(transport)

    async def line(self) -> str:
        """The text up to the first line break, without it.

        Raises:
            ConnectionEnded: it was closed before, the line is longer than `MAX_LINE_BYTES`, or no ASCII.
        """
        while (end := self._held.find(b"\n")) < 0:
            if len(self._held) > MAX_LINE_BYTES:
                break
            if self.ended.done():
                raise ConnectionEnded("it was closed before its first line")
            self._more.clear()
            await self._more.wait()
        if not 0 <= end <= MAX_LINE_BYTES:
            raise ConnectionEnded("its first line is too long")
        text = bytes(self._held[:end])
        del self._held[: end + 1]
        if not text.isascii():
            raise ConnectionEnded("its first line is no text")
        return text.decode("ascii")

    def write(self, content: bytes) -> None:
        self._transport.write(content)

    def join(self, other: "Connection") -> None:
        """The bytes of each go to the other from now on. The end of one ends the other, after all that was sent."""
        self._follow(other)
        other._follow(self)

    def close(self) -> None:
        """Ends it once what was written is sent."""
        self._transport.close()

    def abort(self) -> None:
        """Ends it at once."""
        self._transport.abort()

    def _follow(self, other: "Connection") -> None:
        self._other = other
        if self._held:
            other.write(bytes(self._held))
            self._held.clear()
        if self.ended.done():
            other.close()
        else:
            self._transport.resume_reading()

    def _begin(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=_MAX_WAITING_BYTES)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._begin(cast(asyncio.Transport, transport))  # a stream's, of whichever event loop
        if self._is_secured:
            self._transport.pause_reading()
        if self._on_made is not None:
            self._on_made(self)

    def data_received(self, data: bytes) -> None:
        if self._other is not None:
            self._other.write(data)
            return
        self._held += data
        self._more.set()
        if len(self._held) > _MAX_HELD_BYTES:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        if self._other is not None:
            self._other._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._other is not None:
            self._other._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.ended.done():
            return
        self.ended.set_result(None)
        self._more.set()
        if self._other is not None:
            self._other.close()


class Connections:
    """Those that end together."""

    def __init__(self) -> None:
        self._standing = set[Connection]()
        self._is_ended = False

    def add(self, connection: Connection) -> bool:
        """False: they have ended, and this one is ended, too. A server that is closed may still be accepting it."""
        self._standing.add(connection)
        connection.ended.add_done_callback(lambda _: self._standing.discard(connection))
        if self._is_ended:
            connection.abort()
        return not self._is_ended

    async def end(self) -> None:
        """Ends all of them at once, and waits until they are over."""
        self._is_ended = True
        ending = [connection.ended for connection in self._standing]
        for connection in self._standing:
            connection.abort()
        await asyncio.gather(*ending)
