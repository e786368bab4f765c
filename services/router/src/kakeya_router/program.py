"""The router as a whole: its parts, how they are wired, and the order in which they start and stop."""

import asyncio
import secrets
import socket
from contextlib import suppress
from types import TracebackType
from typing import Self

import structlog

from kakeya_router import admin_service, placement, registry_service, runtime_service
from kakeya_router.access_guard import AccessGuard
from kakeya_router.admin_service import AdminService
from kakeya_router.admission import Admission
from kakeya_router.admission_queue import LEASE_SECONDS, AdmissionQueue
from kakeya_router.authentication import Authenticator
from kakeya_router.call_gate import CallGate
from kakeya_router.callers import Quota
from kakeya_router.closing import LANE_LEASE_SECONDS, Closing
from kakeya_router.detached_tasks import DetachedTasks
from kakeya_router.draining import Draining
from kakeya_router.fleet import Fleet
from kakeya_router.idle_lanes import IdleLanes
from kakeya_router.lanes import Lanes
from kakeya_router.models import Models
from kakeya_router.moving import Moving
from kakeya_router.opening import Opening
from kakeya_router.operations import Operations
from kakeya_router.park_requests import ParkRequests
from kakeya_router.parking import Parking
from kakeya_router.placement import Placement
from kakeya_router.reaper import Reaper
from kakeya_router.registry_service import RegistryService
from kakeya_router.request_limits import RequestLimits
from kakeya_router.resuming import Resuming
from kakeya_router.rewinding import Rewinding
from kakeya_router.runtime_service import RuntimeService
from kakeya_router.session_pages import SessionPages
from kakeya_router.sessions import Sessions
from kakeya_router.settings import RouterSettings
from kakeya_router.snapshotting import Snapshotting
from kakeya_router.sources import Sources
from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.credential_store import CredentialStore
from kakeya_router.store.queue_store import QueueStore
from kakeya_router.store.session_store import Retention, SessionStore
from kakeya_router.store.worker_store import WorkerStore
from kakeya_router.store_watch import StoreWatch
from kakeya_router.tenants import Tenants
from kakeya_router.waiting import Waiting
from kakeya_router.worker_client import WorkerClients
from kakeya_router.worker_sweep import WorkerSweep
from kakeya_shared import plugins
from kakeya_shared.addresses import HostPort
from kakeya_shared.errors import StoreUnavailable
from kakeya_shared.rpc_server import BindError, RpcServer
from kakeya_shared.service_process import StartError
from kakeya_shared.tls import ClientTls, TlsError, client_tls
from kakeya_stubs.admin.v1 import admin_pb2_grpc
from kakeya_stubs.v1 import runtime_pb2_grpc
from kakeya_stubs.worker.v1 import registry_pb2_grpc

_log = structlog.get_logger()

# After the grace the rest is cancelled; what it committed is still to be written through.
_SETTLE_SECONDS = 2.0
_HEARD_SECONDS = 0.1
_LEASES_MISSED = 3
_MAKING_ROOM = ("close-idle", "evict-idle")


class Router:
    """A running router, as a context manager.

    Attributes:
        address: what it listens on.
    """

    def __init__(self, settings: RouterSettings) -> None:
        """Raises StartError: no such placement plugin, or the TLS files cannot be used."""
        self._settings = settings
        grace_seconds = _LEASES_MISSED * settings.heartbeat_interval_seconds
        self._redis = RedisConnection(settings.redis)
        self._tasks = DetachedTasks()
        self._workers = WorkerClients(_worker_tls(settings))
        self._gate = CallGate(max_calls=settings.max_calls, max_calls_per_tenant=settings.max_calls_per_tenant)
        session_store = SessionStore(
            self._redis,
            secrets.token_hex(4),
            operation_lease_seconds=settings.operation_lease_seconds,
            lane_lease_seconds=LANE_LEASE_SECONDS,
            grace_seconds=grace_seconds,
            waiter_grace_seconds=LEASE_SECONDS,
        )
        self._worker_store = WorkerStore(self._redis, settings.worker_lease_seconds)
        queue_store = QueueStore(
            self._redis,
            lease_seconds=LEASE_SECONDS,
            queue_length=settings.queue_length,
            grace_seconds=LEASE_SECONDS,
        )
        self._queue = AdmissionQueue(
            queue_store,
            self._worker_store,
            self._tasks,
            redis_url=settings.redis,
            wakes_without_room=settings.admission in _MAKING_ROOM,
        )
        order = _placement(settings.placement)
        self._fleet = Fleet(
            self._worker_store,
            lambda incarnations: operations.see_workers(incarnations),
            interval_seconds=settings.heartbeat_interval_seconds,
        )
        snapshotting = Snapshotting(
            session_store,
            self._workers,
            self._fleet,
            self._tasks,
            turns=settings.snapshot_turns,
            recovery_seconds=settings.recovery_seconds,
            journal_tokens=max(settings.journal_tokens, settings.max_append_tokens),
        )
        closing = Closing(session_store, self._workers, snapshotting)
        parking = Parking(
            session_store, self._workers, self._fleet, snapshotting, parked_seconds=settings.parked_ttl_seconds
        )
        idle_lanes = self._idle_lanes(session_store, closing, parking)
        resuming = Resuming(
            session_store,
            self._worker_store,
            self._workers,
            order,
            wait_seconds=_wait_seconds(settings),
            idle_lanes=idle_lanes,
        )
        lanes = Lanes(session_store, self._workers, resuming, self._tasks)
        retention = Retention(
            lost_ms=round(settings.lost_retention_seconds * 1000), parked_ms=settings.parked_ttl_seconds * 1000
        )
        operations = Operations(
            session_store,
            self._workers,
            self._tasks,
            lanes,
            snapshotting,
            lease_seconds=settings.operation_lease_seconds,
            retention=retention,
        )
        sources = Sources(session_store, operations)
        sessions = Sessions(
            session_store,
            self._worker_store,
            self._tasks,
            self._admission(session_store, order, closing, sources, idle_lanes),
            closing,
            sources,
            default_ttl_seconds=settings.session_ttl_seconds,
            default_model=settings.default_model,
            key_max_sessions=settings.key_max_sessions,
        )
        sweep = WorkerSweep(session_store, self._worker_store, retention)
        self._reaper = Reaper(
            self._redis,
            session_store,
            self._worker_store,
            queue_store,
            sessions,
            sweep,
            self._workers,
            interval_seconds=settings.reap_interval_seconds,
            grace_seconds=grace_seconds,
        )
        pages = SessionPages(session_store, self._worker_store)
        park_requests = ParkRequests(session_store, operations, parking, self._tasks)
        self._draining = Draining(
            session_store,
            self._worker_store,
            park_requests,
            Moving(session_store, self._worker_store, self._workers, order, snapshotting, self._tasks),
            interval_seconds=settings.reap_interval_seconds,
        )
        self._runtime_service = RuntimeService(
            session_store,
            sessions,
            Models(self._worker_store, settings.default_model),
            operations,
            lanes,
            Rewinding(session_store, self._workers, self._fleet, operations, lanes, snapshotting, self._tasks),
            self._workers,
            self._gate,
            _request_limits(settings),
            pages,
            park_requests,
        )
        self._registry_service = RegistryService(
            self._worker_store,
            sweep,
            snapshotting,
            heartbeat_interval_seconds=settings.heartbeat_interval_seconds,
            worker_lease_seconds=settings.worker_lease_seconds,
        )
        credential_store = CredentialStore(self._redis)
        self._admin_service = AdminService(
            credential_store,
            Tenants(credential_store, session_store, self._worker_store, _default_quota(settings)),
            pages,
            sessions,
            self._worker_store,
            self._tasks,
        )
        self._guard = _guard(settings, credential_store)
        self._loops: list[asyncio.Task[None]] = []
        self._advertised = ""

    @property
    def address(self) -> str:
        return self._server.address

    async def __aenter__(self) -> Self:
        """Raises StartError: the address is taken, or the TLS files cannot be used."""
        self._server = RpcServer(
            self._settings.bind,
            (runtime_service.SERVICE, registry_service.SERVICE, admin_service.SERVICE),
            settings=self._settings,
            grace_seconds=_SETTLE_SECONDS,
            guard=self._guard,
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
        loops = (watch, self._fleet, self._reaper, self._draining, self._queue)
        self._loops = [asyncio.create_task(loop) for loop in (*(each.run() for each in loops), self._queue.listen())]
        _log.info("router listens", address=self.address, advertised=self._advertised)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.close()
        await asyncio.gather(*map(_end, self._loops))
        await self._server.set_serving(False)
        with suppress(StoreUnavailable):  # then nobody reads the list either
            await self._worker_store.forget_router(self._advertised)
        await self._gate.close(self._settings.shutdown_grace_seconds)
        await self._server.__aexit__(kind, error, trace)
        await self._tasks.drain(_SETTLE_SECONDS)
        await self._workers.aclose()
        await self._redis.aclose()
        _log.info("router stopped")

    def _idle_lanes(self, session_store: SessionStore, closing: Closing, parking: Parking) -> IdleLanes | None:
        settings = self._settings
        if settings.admission not in _MAKING_ROOM:
            return None
        return IdleLanes(
            session_store,
            closing,
            self._tasks,
            idle_seconds=settings.close_idle_after_seconds,
            parking=parking if settings.admission == "evict-idle" else None,
        )

    def _admission(
        self,
        session_store: SessionStore,
        order: Placement,
        closing: Closing,
        sources: Sources,
        idle_lanes: IdleLanes | None,
    ) -> Admission:
        settings = self._settings
        opening = Opening(session_store, self._workers, self._tasks, closing)
        if settings.admission == "reject":
            return Admission(opening, order, None)
        waiting = Waiting(
            self._queue,
            self._worker_store,
            opening,
            order,
            sources,
            self._tasks,
            queue_seconds=settings.queue_seconds,
            idle_lanes=idle_lanes,
        )
        return Admission(opening, order, waiting)


async def _end(loop: "asyncio.Task[None]") -> None:
    # More than once: redis-py swallows a cancellation that meets a time-out of its own.
    while not loop.done():
        loop.cancel()
        await asyncio.wait([loop], timeout=_HEARD_SECONDS)


async def serve(settings: RouterSettings, stop: asyncio.Event) -> None:
    """Runs a router until `stop` is set; raises StartError."""
    async with Router(settings):
        await stop.wait()


def _guard(settings: RouterSettings, store: CredentialStore) -> AccessGuard | None:
    """None where no keys are asked for: then everybody is `callers.ANYBODY`, and any worker may join."""
    if settings.auth == "none":
        return None
    if settings.admin_key is None:
        _log.warning("no KAKEYA_ROUTER_ADMIN_KEY: unless Redis holds a key with the scope admin, nobody can make keys")
    authenticator = Authenticator(
        store, _default_quota(settings), admin_key=settings.admin_key, join_token=settings.join_token
    )
    return AccessGuard(authenticator)


def _default_quota(settings: RouterSettings) -> Quota:
    return Quota(settings.tenant_max_sessions, settings.tenant_max_bytes, settings.tenant_tokens_per_minute)


def _request_limits(settings: RouterSettings) -> RequestLimits:
    return RequestLimits(
        max_append_tokens=settings.max_append_tokens,
        max_generate_tokens=settings.max_generate_tokens,
        max_history_tokens=settings.max_history_tokens,
        max_label_bytes=settings.max_label_bytes,
    )


def _wait_seconds(settings: RouterSettings) -> float | None:
    """How long a session that has lost its lane waits for one; None: for ever."""
    if settings.admission == "reject":
        return 0.0
    return settings.queue_seconds or None


def _placement(name: str) -> placement.Placement:
    try:
        plugin: type[placement.Placement] = plugins.load(placement.GROUP, name)
    except plugins.PluginError as error:
        raise StartError(str(error)) from error
    return plugin()


def _worker_tls(settings: RouterSettings) -> ClientTls | None:
    try:
        return client_tls(settings.worker_ca, settings.tls_cert, settings.tls_key)
    except TlsError as error:
        raise StartError(str(error)) from error


def _reachable(address: str) -> str:
    """An address that others can use: an unspecified host is replaced by this host's name."""
    host, port = HostPort.parse(address)
    # Nothing is bound here: the address is only recognized.
    return str(HostPort(socket.gethostname() if host in ("0.0.0.0", "::") else host, port))  # noqa: S104
