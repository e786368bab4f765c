"""The router as a whole: the order in which its parts start and stop."""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

import structlog

from kakeya_router.api import admin_service, registry_service, runtime_service
from kakeya_router.health import StoreWatch
from kakeya_router.metrics import PREFIX
from kakeya_router.settings import RouterSettings
from kakeya_router.store.layout import UnknownLayout
from kakeya_router.tunnels.tunnel_port import PortTakenError
from kakeya_router.wiring import Parts
from kakeya_shared.errors.tree import StoreUnavailable
from kakeya_shared.metrics.exposition import Exposition, ExpositionError
from kakeya_shared.plugins import PluginError
from kakeya_shared.process.bulletin import cancelled
from kakeya_shared.process.service_process import StartError
from kakeya_shared.rpc.metric_export import MetricExport
from kakeya_shared.rpc.served_calls import CallMeters
from kakeya_shared.rpc.server import BindError, RpcServer
from kakeya_shared.rpc.tls import TlsError
from kakeya_shared.settings.addresses import NOWHERE, HostPort

_log = structlog.get_logger()

# After the grace the rest is cancelled; what it committed is still to be written through.
_SETTLE_SECONDS = 2.0


class Router:
    """A running router, as a context manager.

    Attributes:
        address: what it listens on.
    """

    def __init__(self, settings: RouterSettings) -> None:
        """Raises StartError: no such placement plugin, or the TLS files cannot be used."""
        self._settings = settings
        try:
            self._parts = Parts(settings)
        except (PluginError, TlsError) as error:
            raise StartError(str(error)) from error
        self._exposition = Exposition(self._parts.base.metrics.meters, settings.metrics_bind)
        self._export = MetricExport(self._parts.base.metrics.meters, "router")
        self._loops: list[asyncio.Task[None]] = []
        self._advertised = ""
        self._tunnel_address = ""

    @property
    def address(self) -> str:
        return self._server.address

    @property
    def metrics_address(self) -> str:
        """Where metrics are served; "": nowhere."""
        return self._exposition.address

    async def __aenter__(self) -> Self:
        """Raises StartError: the address is taken, the TLS files are of no use, or Redis has data of a newer layout."""
        parts = self._parts
        self._server = RpcServer(
            self._settings.bind,
            (runtime_service.SERVICE, registry_service.SERVICE, admin_service.SERVICE),
            settings=self._settings,
            grace_seconds=_SETTLE_SECONDS,
            guard=parts.guard,
            meters=CallMeters(parts.base.metrics.meters, PREFIX),
        )
        for service in (parts.runtime_service, parts.registry_service, parts.admin_service):
            service.register(self._server.grpc_server)
        try:
            with suppress(StoreUnavailable):  # once Redis answers, `StoreWatch` looks
                await parts.base.redis.claim_layout()
            await self._exposition.__aenter__()
            await self._server.__aenter__()
            await self._open_tunnel_port()
        except (UnknownLayout, BindError, ExpositionError, PortTakenError) as error:
            await self._exposition.__aexit__(None, None, None)
            await parts.base.redis.aclose()
            raise StartError(str(error)) from error
        await self._export.__aenter__()
        parts.base.metrics.meters.before_reading(parts.fleet_reading.refresher(asyncio.get_running_loop()))
        watch = StoreWatch(
            parts.base.redis,
            parts.base.stores.workers,
            self._advertised,
            self._server.set_serving,
            self._announce_tunnel_port,
            interval_seconds=parts.base.look_seconds,
        )
        loops = (watch, parts.base.fleet, parts.base.probing, parts.reaper, parts.drainer, parts.queue)
        self._loops = [asyncio.create_task(loop) for loop in (*(each.run() for each in loops), parts.queue.listen())]
        self._renewals = asyncio.create_task(parts.renewals.run())
        _log.info(
            "router listens",
            address=self.address,
            advertised=self._advertised,
            metrics=self._exposition.address or NOWHERE,
            tunnels=parts.base.tunnel_port.address or NOWHERE,
        )
        return self

    async def _open_tunnel_port(self) -> None:
        """Raises PortTakenError."""
        base, settings = self._parts.base, self._settings
        self._advertised = settings.advertise or _reachable(self.address)
        base.ways.router = self._advertised
        if settings.tunnel_bind == NOWHERE:
            return
        try:
            await base.tunnel_port.listen(settings.tunnel_bind)
        except PortTakenError:
            await self._server.__aexit__(None, None, None)
            raise
        near = HostPort.parse(base.tunnel_port.address)
        host = HostPort.parse(self._advertised).host if near.host in ("0.0.0.0", "::") else near.host  # noqa: S104  # compared with, not bound to
        self._tunnel_address = settings.tunnel_advertise or str(HostPort(host, near.port))
        is_secured = base.tunnel_port.is_secured
        self._parts.tunnelling.open(self._advertised, self._tunnel_address, is_secured=is_secured)

    async def _announce_tunnel_port(self, routers: Sequence[str]) -> None:
        """Raises StoreUnavailable."""
        if self._tunnel_address:
            await self._parts.base.stores.tunnels.announce(self._advertised, self._tunnel_address, routers)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        parts = self._parts
        for reader in (self._exposition, self._export):  # first: they ask what ends below
            await reader.__aexit__(kind, error, trace)
        parts.queue.close()
        parts.base.board.close()
        await asyncio.gather(*map(cancelled, self._loops))
        await self._server.set_serving(False)
        with suppress(StoreUnavailable, TimeoutError):  # then nobody reads the list either
            async with asyncio.timeout(_SETTLE_SECONDS):
                await parts.base.stores.workers.forget_router(self._advertised)
                await parts.base.stores.tunnels.forget(self._advertised)
                if await parts.base.stores.workers.routers():  # else heartbeats would have no place to go to meanwhile
                    self._server.turn_away(self._settings.shutdown_grace_seconds + _SETTLE_SECONDS)
        await parts.gate.close(self._settings.shutdown_grace_seconds)
        parts.base.tunnels.close()
        await self._server.__aexit__(kind, error, trace)
        await parts.base.tasks.drain(_SETTLE_SECONDS)
        await cancelled(self._renewals)  # until here operations may run
        await parts.base.workers.aclose()
        await parts.base.tunnel_port.close()
        await parts.base.redis.aclose()
        _log.info("router stopped")


async def serve(settings: RouterSettings, stop: asyncio.Event) -> None:
    """Runs a router until `stop` is set; raises StartError."""
    async with Router(settings):
        await stop.wait()


def _reachable(address: str) -> str:
    """An address that others can use: an unspecified host is replaced by this host's name."""
    host, port = HostPort.parse(address)
    # Nothing is bound here: the address is only recognized.
    return str(HostPort(socket.gethostname() if host in ("0.0.0.0", "::") else host, port))  # noqa: S104
