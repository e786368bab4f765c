"""One tunnel: the control stream to a router, and the connections that the router has asked for through it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Self

import grpc
import structlog

from kakeya_shared.errors import error_details
from kakeya_shared.process.detached_tasks import DetachedTasks, is_cancelled
from kakeya_shared.rpc.tls import ContextTls
from kakeya_shared.settings.addresses import HostPort
from kakeya_shared.tunnel.connection import Connection, Connections
from kakeya_shared.tunnel.opening import Opening
from kakeya_shared.tunnel.pace import BEAT_SECONDS, SILENCE_SECONDS
from kakeya_stubs.worker.v1 import registry_pb2 as pb
from kakeya_worker.joining.router_link import Metadata

if TYPE_CHECKING:  # exists in the stubs' types only
    from kakeya_stubs.worker.v1.registry_pb2_grpc import RegistryServiceAsyncStub

_log = structlog.get_logger()

_CONNECT_SECONDS = 3.0
_BEAT = pb.TunnelRequest()


class TunnelEnded(Exception):
    """It is over; the message says why."""


class Tunnel:
    """Of one incarnation, to one router; a context manager. Ended, it ends its connections with it.

    Args:
        server: the socket of this worker's own server.
        tls: for the connections, where the router's tunnel port speaks TLS.

    Attributes:
        router: the name of the router, once it has begun.
    """

    def __init__(
        self, registry: "RegistryServiceAsyncStub", metadata: Metadata, server: Path, tls: ContextTls | None
    ) -> None:
        self.router = ""
        self._call = registry.Tunnel(metadata=metadata)
        self._server = server
        self._tls = tls
        self._welcome = pb.TunnelResponse.Welcome()
        self._outbox = asyncio.Queue[pb.TunnelRequest]()
        self._connections = Connections()
        self._tasks = DetachedTasks()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def begin(self, begin: pb.TunnelRequest.Begin) -> None:
        """Opens it. Raises TunnelEnded, and what of the error tree the router answers."""
        with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):  # it has ended; what is read says why
            await self._call.write(pb.TunnelRequest(begin=begin))
        response = await self._read()
        if not response.HasField("welcome"):
            raise TunnelEnded("the router does not greet")
        self._welcome = response.welcome
        self.router = response.welcome.router

    async def hold(self, is_current: Callable[[], bool]) -> NoReturn:
        """Serves until it ends, which it always does by an error: as `begin`.

        Args:
            is_current: whether the tunnel's incarnation is still this worker's.
        """
        saying = self._tasks.start(self._say())
        while is_current() and not saying.done():
            response = await self._read()
            if response.HasField("dial"):
                self._tasks.start(self._connect(response.dial.dial))
        raise TunnelEnded("it does not take what this worker says" if saying.done() else "another incarnation began")

    async def end(self) -> None:
        self._call.cancel()
        await self._tasks.drain(0)
        await self._connections.end()

    async def _read(self) -> pb.TunnelResponse:
        """Raises as `begin`."""
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                response = await self._call.read()
                if isinstance(response, pb.TunnelResponse):
                    return response
                details = await self._call.details()
        except TimeoutError:
            raise TunnelEnded(f"nothing was heard of the router for {SILENCE_SECONDS:g} s") from None
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise TunnelEnded("it was ended here") from None
        except grpc.aio.AioRpcError as error:
            raise error_details.decode(error) or TunnelEnded(f"{error.code().name}: {error.details()}") from error
        raise TunnelEnded(details or "the router has ended it")

    async def _say(self) -> None:
        """Beats, and what else there is to say."""
        while True:
            message = _BEAT
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_SECONDS):
                    message = await self._outbox.get()
            try:
                await self._call.write(message)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                return  # what is read says why

    async def _connect(self, dial: bytes) -> None:
        """Makes the connection that the router has asked for, between its tunnel port and this worker's server."""
        address = HostPort.parse(self._welcome.address)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                inner, outer = await self._both_ends(address)
        except OSError as error:  # a time-out and TLS's errors among them
            why = f"{address}: {error or 'no answer'}"
            _log.warning("the router's tunnel port cannot be reached", router=self.router, reason=why)
            self._outbox.put_nowait(pb.TunnelRequest(failed=pb.TunnelRequest.Failed(dial=dial, why=why)))
            return
        outer.write(Opening("dial", self.router, dial.hex()).line())
        inner.join(outer)

    async def _both_ends(self, address: HostPort) -> tuple[Connection, Connection]:
        """To this worker's server, and to the tunnel port. Raises OSError."""
        loop = asyncio.get_running_loop()
        context = self._tls.context() if self._welcome.tls and self._tls is not None else None
        name = address.host if context is not None else None
        _, outer = await loop.create_connection(
            self._connection, address.host, address.port, ssl=context, server_hostname=name
        )
        try:
            _, inner = await loop.create_unix_connection(self._connection, str(self._server))
        except BaseException:  # else the router would wait for its first line
            outer.abort()
            raise
        return inner, outer

    def _connection(self) -> Connection:
        return Connection(self._connections.add)
