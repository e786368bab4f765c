"""The port to which workers behind tunnels, and routers without one, connect."""

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

import structlog

from kakeya_router.store.session_record import Incarnation
from kakeya_router.tunnels.tunnel import NoWay
from kakeya_router.tunnels.tunnels import Tunnels
from kakeya_router.tunnels.ways import Ways
from kakeya_shared.errors.tree import StoreUnavailable
from kakeya_shared.process.detached_tasks import DetachedTasks
from kakeya_shared.settings.addresses import HostPort
from kakeya_shared.tunnel.connection import Connection, ConnectionEnded, Connections, close_server
from kakeya_shared.tunnel.opening import OK, Opening

_log = structlog.get_logger()

# From the connection to the end of its first line, TLS's handshake included.
_OPENING_SECONDS = 5.0
# That have not said what they are. Those who know say it within milliseconds; when there are more, the oldest goes.
_MAX_STRANGERS = 256
# Workers that come back at once, to a router that has started anew. What finds no place here believes to be connected.
_BACKLOG = 1024
# A port that is open to the network is scanned: one line in a while says how often.
_TELL_SECONDS = 60.0


class PortTls(Protocol):
    """TLS of the port, with the files as they are now."""

    def context(self) -> ssl.SSLContext: ...


class PortTakenError(Exception):
    """The address cannot be listened on."""


class TunnelPort:
    """Knows a connection by its first line; what has none, or a false one, is closed and counted.

    Args:
        tls: None for plaintext.

    Attributes:
        address: what is listened on, once started.
    """

    def __init__(self, tunnels: Tunnels, ways: Ways, tls: PortTls | None) -> None:
        self.is_secured = tls is not None
        self.address = ""
        self._tunnels = tunnels
        self._ways = ways
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._strangers: dict[Connection, None] = {}  # in the order of their coming
        self._connections = Connections()
        self._tasks = DetachedTasks()
        self._refusals = _Refusals()

    async def listen(self, bind: str) -> None:
        """Raises PortTakenError."""
        host, port = HostPort.parse(bind)
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: Connection(self._come, is_secured=self.is_secured), host, port, backlog=_BACKLOG
            )
        except OSError as error:
            raise PortTakenError(f"--tunnel-bind: cannot listen on {bind}: {error.strerror}") from error
        self.address = str(HostPort(host, self._server.sockets[0].getsockname()[1]))

    async def close(self) -> None:
        if self._server is not None:
            await close_server(self._server)
        await self._tasks.drain(0)
        await self._connections.end()

    def _come(self, connection: Connection) -> None:
        if not self._connections.add(connection):
            return
        if len(self._strangers) >= _MAX_STRANGERS:
            oldest = next(iter(self._strangers))
            oldest.abort()
            del self._strangers[oldest]
            self._refusals.count("too many at once", oldest.peer)
        self._strangers[connection] = None
        receiving = self._tasks.start(self._receive(connection))
        connection.ended.add_done_callback(lambda _: self._left(connection, receiving))

    def _left(self, connection: Connection, receiving: asyncio.Task[None]) -> None:
        if self._strangers.pop(connection, connection) is None:
            receiving.cancel()

    async def _receive(self, connection: Connection) -> None:
        try:
            async with asyncio.timeout(_OPENING_SECONDS):
                opening = await self._opening(connection)
        except (ConnectionEnded, ValueError) as error:
            self._refuse(connection, str(error))
        except TimeoutError:
            self._refuse(connection, f"nothing for {_OPENING_SECONDS:g} s")
        else:
            self._strangers.pop(connection, None)
            await self._let_in(connection, opening)

    async def _opening(self, connection: Connection) -> Opening:
        """Raises ConnectionEnded, ValueError."""
        if self._tls is not None:
            await connection.secure(self._tls.context(), _OPENING_SECONDS)
        return Opening.parse(await connection.line())

    async def _let_in(self, connection: Connection, opening: Opening) -> None:
        try:
            if opening.kind == "through":
                await self._pass_through(connection, opening)
            elif opening.router != self._ways.router:  # behind one address for all routers the worker cannot choose
                other = await self._ways.connect(opening.router)
                other.write(opening.line())
                connection.join(other)
            elif not self._tunnels.answer(bytes.fromhex(opening.wanted), connection):
                self._refuse(connection, "nobody asked for it")
        except (NoWay, StoreUnavailable, ValueError) as error:
            self._refuse(connection, str(error))

    async def _pass_through(self, connection: Connection, opening: Opening) -> None:
        """Raises NoWay, StoreUnavailable: the other router was told."""
        try:
            worker = await self._ways.dial_here(Incarnation(opening.wanted), opening.secret)
        except (NoWay, StoreUnavailable) as error:
            connection.write(f"{error}\n".encode("ascii", "replace"))
            raise
        connection.write(f"{OK}\n".encode())
        connection.join(worker)

    def _refuse(self, connection: Connection, why: str) -> None:
        self._refusals.count(why, connection.peer)
        connection.close()


class _Refusals:
    """Counts, and tells of them now and then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told_at = -_TELL_SECONDS
        self._counts = Counter[str]()

    def count(self, why: str, peer: str) -> None:
        self._counts[why] += 1
        if self._clock() >= self._told_at + _TELL_SECONDS:
            self._told_at = self._clock()
            reasons = dict(self._counts.most_common(5))
            _log.warning("connections to the tunnel port were refused", latest_from=peer, reasons=reasons)
            self._counts.clear()
