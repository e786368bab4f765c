"""How this router comes to a worker behind a tunnel: by its own, or through a router that has one."""

import asyncio
import hmac
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from kakeya_router.store.fleet.tunnel_store import TunnelStore
from kakeya_router.store.session_record import Incarnation
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.tunnels.tunnel import NoWay
from kakeya_router.tunnels.tunnels import Tunnels
from kakeya_shared.errors.tree import StoreUnavailable
from kakeya_shared.settings.addresses import HostPort
from kakeya_shared.tunnel.connection import Connection, ConnectionEnded
from kakeya_shared.tunnel.opening import OK, Opening

_log = structlog.get_logger()

_CONNECT_SECONDS = 3.0
# A worker whose link has come back is reached within a tenth of a second.
_RETRY_SECONDS = 0.1


class RouterTls(Protocol):
    """TLS towards other routers, with the files as they are now."""

    def context(self) -> ssl.SSLContext: ...


@dataclass(eq=False)
class Ways:
    """Finds a way as long as the worker is registered: while its tunnels are away, who wants it waits.

    Args:
        look: at the workers; None: there is no such incarnation any more.
        tls: None for plaintext.

    Attributes:
        router: this router's name, set once it is known.
    """

    _tunnels: Tunnels
    _store: TunnelStore
    _look: Callable[[Incarnation], Awaitable[WorkerRecord | None]]
    _tls: RouterTls | None
    router: str = field(default="", init=False)

    async def dial(self, incarnation: Incarnation) -> Connection:
        """A connection to the worker's server. Raises NoWay: it is gone."""
        told = ""
        while True:
            try:
                return await self._dial_once(incarnation)
            except (NoWay, StoreUnavailable) as error:
                if told != str(error):
                    told = str(error)
                    _log.info("a worker behind a tunnel is not reached yet", incarnation=incarnation, reason=told)
            await asyncio.sleep(_RETRY_SECONDS)
            if await self._is_gone(incarnation):
                raise NoWay("the worker is gone")

    async def dial_here(self, incarnation: Incarnation, secret: str) -> Connection:
        """For another router. Raises NoWay: no tunnel of it ends here, or who asks is no router. StoreUnavailable."""
        if not hmac.compare_digest(secret, await self._store.secret()):
            raise NoWay("who asks is no router of this runtime")
        return await self._tunnels.dial(incarnation)

    async def connect(self, router: str) -> Connection:
        """A connection to another router's tunnel port. Raises NoWay, StoreUnavailable."""
        port = await self._store.port(router)
        if port is None:
            raise NoWay(f"the router {router} has no tunnel port")
        host, number = HostPort.parse(port)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                context = None if self._tls is None else self._tls.context()
                name = host if context is not None else None
                _, connection = await loop.create_connection(
                    Connection, host, number, ssl=context, server_hostname=name
                )
        except OSError as error:  # a time-out and TLS's errors among them
            raise NoWay(f"the router {router} cannot be reached at {port}: {error or 'no answer'}") from error
        return connection

    async def _dial_once(self, incarnation: Incarnation) -> Connection:
        """Raises NoWay, StoreUnavailable."""
        try:
            return await self._tunnels.dial(incarnation)
        except NoWay as error:
            why = error
        worker = await self._look(incarnation)
        others = worker.tunnel_routers if worker is not None else ()
        for router in others:
            if router != self.router:
                try:
                    return await self._through(router, incarnation)
                except NoWay as error:
                    why = error
        raise why

    async def _through(self, router: str, incarnation: Incarnation) -> Connection:
        """Raises NoWay, StoreUnavailable."""
        opening = Opening("through", router, incarnation, await self._store.secret())
        connection = await self.connect(router)
        try:
            answer = await _answer(connection, opening)
            if answer != OK:
                raise NoWay(f"through the router {router}: {answer}")
        except BaseException:  # who wanted it may have left meanwhile
            connection.abort()
            raise
        return connection

    async def _is_gone(self, incarnation: Incarnation) -> bool:
        try:
            return await self._look(incarnation) is None
        except StoreUnavailable:
            return False  # no lease ages meanwhile


async def _answer(connection: Connection, opening: Opening) -> str:
    """What the other router says to it, or why it says nothing."""
    connection.write(opening.line())
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            return await connection.line()
    except (ConnectionEnded, TimeoutError) as error:
        return str(error) or "no answer"
