"""The router as a whole: its parts, how they are wired, and the order in which they start and stop."""

import asyncio
import secrets
import socket
from contextlib import suppress
from types import TracebackType
from typing import Self

import structlog

from kakeya_router import admin_service, placement, registry_service, runtime_service
from kakeya_router.admin_service import AdminService
from kakeya_router.call_gate import CallGate
from kakeya_router.detached_tasks import DetachedTasks
from kakeya_router.operations import Operations
from kakeya_router.reaper import Reaper
from kakeya_router.registry_service import RegistryService
from kakeya_router.runtime_service import RuntimeService
from kakeya_router.sessions import LANE_LEASE_SECONDS, Sessions
from kakeya_router.settings import RouterSettings
from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.session_store import SessionStore
from kakeya_router.store.worker_store import WorkerStore
from kakeya_router.store_watch import StoreWatch
from kakeya_router.worker_client import WorkerClients
from kakeya_router.worker_sweep import WorkerSweep
from kakeya_shared import plugins
from kakeya_shared.addresses import HostPort
from kakeya_shared.errors import StoreUnavailable
from kakeya_shared.rpc_server import BindError, RpcServer
from kakeya_shared.service_process import StartError
from kakeya_stubs.admin.v1 import admin_pb2_grpc
from kakeya_stubs.v1 import runtime_pb2_grpc
from kakeya_stubs.worker.v1 import registry_pb2_grpc

_log = structlog.get_logger()

# After the grace the rest is cancelled; what it committed is still to be written through.
_SETTLE_SECONDS = 2.0
_LEASES_MISSED = 3
_BYTES_PER_TOKEN = 5
# Far above the longest append, so that a longer one gets the error that says so.
_MESSAGE_FLOOR_BYTES = 16 << 20


class Router:
    """A running router, as a context manager.

    Attributes:
        address: what it listens on.
    """

    def __init__(self, settings: RouterSettings) -> None:
        """Raises StartError: no such placement plugin."""
        self._settings = settings
        grace_seconds = _LEASES_MISSED * settings.heartbeat_interval_seconds
        self._redis = RedisConnection(settings.redis)
        self._tasks = DetachedTasks()
        self._workers = WorkerClients()
        self._gate = CallGate()
        session_store = SessionStore(
            self._redis,
            secrets.token_hex(4),
            operation_lease_seconds=settings.operation_lease_seconds,
            lane_lease_seconds=LANE_LEASE_SECONDS,
            grace_seconds=grace_seconds,
        )
        self._worker_store = WorkerStore(self._redis, settings.worker_lease_seconds)
        sessions = Sessions(
            session_store,
            self._worker_store,
            self._workers,
            self._tasks,
            _placement(settings.placement),
            default_ttl_seconds=settings.session_ttl_seconds,
            default_model=settings.default_model,
        )
        operations = Operations(
            session_store,
            self._workers,
            self._tasks,
            lease_seconds=settings.operation_lease_seconds,
            lost_retention_seconds=settings.lost_retention_seconds,
        )
        sweep = WorkerSweep(session_store, self._worker_store, settings.lost_retention_seconds)
        self._reaper = Reaper(
            self._redis,
            session_store,
            self._worker_store,
            sessions,
            sweep,
            self._workers,
            interval_seconds=settings.reap_interval_seconds,
            grace_seconds=grace_seconds,
        )
        self._runtime_service = RuntimeService(
            session_store,
            sessions,
            operations,
            self._workers,
            self._gate,
            max_append_tokens=settings.max_append_tokens,
        )
        self._registry_service = RegistryService(
            self._worker_store,
            sweep,
            heartbeat_interval_seconds=settings.heartbeat_interval_seconds,
            worker_lease_seconds=settings.worker_lease_seconds,
        )
        self._admin_service = AdminService(self._worker_store)
        self._loops: list[asyncio.Task[None]] = []
        self._advertised = ""

    @property
    def address(self) -> str:
        return self._server.address

    async def __aenter__(self) -> Self:
        """Raises StartError: the address is taken."""
        self._server = RpcServer(
            self._settings.bind,
            (runtime_service.SERVICE, registry_service.SERVICE, admin_service.SERVICE),
            grace_seconds=_SETTLE_SECONDS,
            max_message_bytes=max(_MESSAGE_FLOOR_BYTES, 2 * _BYTES_PER_TOKEN * self._settings.max_append_tokens),
        )
        runtime_pb2_grpc.add_RuntimeServiceServicer_to_server(self._runtime_service, self._server.grpc_server)
        registry_pb2_grpc.add_RegistryServiceServicer_to_server(self._registry_service, self._server.grpc_server)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(self._admin_service, self._server.grpc_server)
        try:
            await self._server.__aenter__()
        except BindError as error:
            await self._redis.aclose()
            raise StartError(str(error)) from error
        self._advertised = self._settings.advertise or _reachable(self.address)
        watch = StoreWatch(
            self._worker_store,
            self._advertised,
            self._server.set_serving,
            interval_seconds=self._settings.heartbeat_interval_seconds,
        )
        self._loops = [asyncio.create_task(watch.run()), asyncio.create_task(self._reaper.run())]
        _log.info("router listens", address=self.address, advertised=self._advertised)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await self._server.set_serving(False)
        with suppress(StoreUnavailable):  # then nobody reads the list either
            await self._worker_store.forget_router(self._advertised)
        await self._gate.close(self._settings.shutdown_grace_seconds)
        await self._server.__aexit__(kind, error, trace)
        await self._tasks.drain(_SETTLE_SECONDS)
        await self._workers.aclose()
        await self._redis.aclose()
        _log.info("router stopped")


async def serve(settings: RouterSettings, stop: asyncio.Event) -> None:
    """Runs a router until `stop` is set; raises StartError."""
    async with Router(settings):
        await stop.wait()


def _placement(name: str) -> placement.Placement:
    try:
        plugin: type[placement.Placement] = plugins.load(placement.GROUP, name)
    except plugins.PluginError as error:
        raise StartError(str(error)) from error
    return plugin()


def _reachable(address: str) -> str:
    """An address that others can use: an unspecified host is replaced by this host's name."""
    host, port = HostPort.parse(address)
    return str(HostPort(socket.gethostname() if host in ("0.0.0.0", "::") else host, port))  # noqa: S104
