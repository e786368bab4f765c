"""What a router consists of, and how that is wired."""

import secrets

import structlog

from kakeya_router.access.access_guard import AccessGuard
from kakeya_router.access.authentication import Authenticator
from kakeya_router.access.tenants import Tenants
from kakeya_router.api.admin_service import AdminService
from kakeya_router.api.call_gate import CallGate
from kakeya_router.api.models import Models
from kakeya_router.api.registry_service import RegistryService
from kakeya_router.api.runtime_service import RuntimeService
from kakeya_router.api.session_pages import SessionPages
from kakeya_router.contract.validation import RequestLimits
from kakeya_router.lanes.admission_queue import LEASE_SECONDS, AdmissionQueue
from kakeya_router.lanes.closing import LANE_LEASE_SECONDS, Closing
from kakeya_router.lanes.idle_lanes import IdleLanes
from kakeya_router.lanes.moving import Moving
from kakeya_router.lanes.parking import Parking
from kakeya_router.lanes.resuming import Resuming
from kakeya_router.lanes.search import Search
from kakeya_router.operations.append import Appending
from kakeya_router.operations.generate import Generating
from kakeya_router.operations.operations import Operations
from kakeya_router.operations.recovery import Recovery
from kakeya_router.operations.settling import Settling
from kakeya_router.sessions.creating import Creating
from kakeya_router.sessions.draining import Drainer
from kakeya_router.sessions.opening import Opening
from kakeya_router.sessions.park_requests import ParkRequests
from kakeya_router.sessions.reaper import Reaper
from kakeya_router.sessions.rewinding import Rewinding
from kakeya_router.sessions.sessions import Sessions
from kakeya_router.sessions.sources import Sources
from kakeya_router.settings import RouterSettings
from kakeya_router.snapshots.snapshotting import Snapshotting
from kakeya_router.store.access.credential_store import CredentialStore
from kakeya_router.store.access.rights import Quota
from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.keys import ROOM
from kakeya_router.store.sessions.closing_store import ClosingStore
from kakeya_router.store.sessions.creation_store import CreationStore
from kakeya_router.store.sessions.journal_store import JournalStore
from kakeya_router.store.sessions.lane_store import LaneStore
from kakeya_router.store.sessions.operation_store import OperationStore
from kakeya_router.store.sessions.queue_store import QueueStore
from kakeya_router.store.sessions.session_changes import TimesToLive
from kakeya_router.store.sessions.session_lists import SessionLists
from kakeya_router.store.sessions.session_store import Holder
from kakeya_router.store.sessions.snapshot_lists import SnapshotLists
from kakeya_router.store.subscription import messages
from kakeya_router.workers import placement
from kakeya_router.workers.fleet import Fleet
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_router.workers.worker_sweep import WorkerSweep
from kakeya_shared import plugins
from kakeya_shared.process.detached_tasks import DetachedTasks
from kakeya_shared.process.service_process import StartError
from kakeya_shared.rpc.tls import ClientTls, TlsError, client_tls

_log = structlog.get_logger()

_LEASES_MISSED = 3
_MAKING_ROOM = ("close-idle", "evict-idle")


class Parts:
    """Attributes are what starts, serves and stops; all else is known to them only."""

    def __init__(self, settings: RouterSettings) -> None:
        """Raises StartError: no such placement plugin, or the TLS files cannot be used."""
        self._settings = settings
        grace_seconds = _LEASES_MISSED * settings.heartbeat_interval_seconds
        self.redis = RedisConnection(settings.redis, settings.redis_timeout_seconds, directory=settings.redis_directory)
        self.tasks = DetachedTasks()
        self.workers = WorkerClients(_worker_tls(settings))
        self.gate = CallGate(max_calls=settings.max_calls, max_calls_per_tenant=settings.max_calls_per_tenant)
        holder = Holder(
            router_id=secrets.token_hex(4),
            operation_lease_seconds=settings.operation_lease_seconds,
            lane_lease_seconds=LANE_LEASE_SECONDS,
            grace_seconds=grace_seconds,
            waiter_grace_seconds=LEASE_SECONDS,
        )
        creations, journals = CreationStore(self.redis, holder), JournalStore(self.redis, holder)
        closings, lane_store = ClosingStore(self.redis, holder), LaneStore(self.redis, holder)
        lists, snapshot_lists = SessionLists(self.redis, holder), SnapshotLists(self.redis, holder)
        operation_store = OperationStore(self.redis, holder)
        self.worker_store = WorkerStore(self.redis, settings.worker_lease_seconds)
        queue_store = QueueStore(
            self.redis, lease_seconds=LEASE_SECONDS, queue_length=settings.queue_length, grace_seconds=LEASE_SECONDS
        )
        order = _placement(settings.placement)
        self.fleet = Fleet(
            self.worker_store,
            lambda incarnations: operations.see_workers(incarnations),
            self.workers.see,
            interval_seconds=settings.heartbeat_interval_seconds,
        )
        snapshotting = Snapshotting(
            snapshot_lists,
            self.workers,
            self.fleet,
            self.tasks,
            turns=settings.snapshot_turns,
            recovery_seconds=settings.recovery_seconds,
            journal_tokens=max(settings.journal_tokens, settings.max_append_tokens),
        )
        closing = Closing(closings, self.workers, snapshotting, self.tasks)
        parking = Parking(
            lane_store, self.workers, self.fleet, snapshotting, self.tasks, parked_seconds=settings.parked_ttl_seconds
        )
        idle_lanes = self._idle_lanes(lists, closing, parking)
        self.queue = AdmissionQueue(
            queue_store,
            self.worker_store,
            self.tasks,
            rooms=lambda: messages(settings.redis, settings.redis_timeout_seconds, ROOM),
            idle_lanes=idle_lanes,
        )
        search = Search(
            self.worker_store,
            order,
            None if settings.admission == "reject" else self.queue,
            wait_seconds=settings.queue_seconds or None,
        )
        resuming = Resuming(lane_store, journals, snapshot_lists, self.workers, search)
        moving = Moving(lane_store, self.worker_store, self.workers, order, snapshotting, self.tasks)
        recovery = Recovery(journals, self.workers, resuming, moving, self.tasks)
        retention = TimesToLive(
            lost_ms=round(settings.lost_retention_seconds * 1000), parked_ms=settings.parked_ttl_seconds * 1000
        )
        settling = Settling(operation_store, self.workers, self.tasks, snapshotting, closing, retention=retention)
        operations = Operations(
            operation_store,
            self.tasks,
            recovery,
            settling,
            snapshotting,
            lease_seconds=settings.operation_lease_seconds,
        )
        limits = _request_limits(settings)
        appending = Appending(operations, recovery, snapshotting, limits, self.tasks)
        sources = Sources(creations, operations)
        sessions = Sessions(
            creations,
            closings,
            self.worker_store,
            self.tasks,
            search,
            Creating(Opening(creations, journals, self.workers, self.tasks, closing, sources), sources),
            closing,
            sources,
            default_ttl_seconds=settings.session_ttl_seconds,
            default_model=settings.default_model,
            key_max_sessions=settings.key_max_sessions,
        )
        sweep = WorkerSweep(lists, self.worker_store, retention)
        self.reaper = Reaper(
            self.redis,
            lists,
            self.worker_store,
            queue_store,
            sessions,
            sweep,
            self.workers,
            self.fleet,
            self.tasks,
            interval_seconds=settings.reap_interval_seconds,
            grace_seconds=grace_seconds,
        )
        pages = SessionPages(lists, self.worker_store)
        park_requests = ParkRequests(lane_store, operations, parking, self.tasks)
        self.drainer = Drainer(
            lists, self.worker_store, park_requests, moving, interval_seconds=settings.reap_interval_seconds
        )
        self.runtime_service = RuntimeService(
            lists,
            sessions,
            Models(self.worker_store, settings.default_model),
            appending,
            Generating(operations, recovery, appending, snapshotting, self.workers, limits),
            Rewinding(journals, self.workers, self.fleet, operations, recovery, snapshotting, self.tasks),
            self.gate,
            limits,
            pages,
            park_requests,
        )
        self.registry_service = RegistryService(
            self.worker_store,
            sweep,
            snapshotting,
            heartbeat_interval_seconds=settings.heartbeat_interval_seconds,
            worker_lease_seconds=settings.worker_lease_seconds,
        )
        credential_store = CredentialStore(self.redis)
        self.admin_service = AdminService(
            credential_store,
            Tenants(credential_store, lists, self.worker_store, _default_quota(settings)),
            pages,
            sessions,
            self.worker_store,
            self.tasks,
        )
        self.guard = _guard(settings, credential_store)

    def _idle_lanes(self, lists: SessionLists, closing: Closing, parking: Parking) -> IdleLanes | None:
        settings = self._settings
        if settings.admission not in _MAKING_ROOM:
            return None
        return IdleLanes(
            lists,
            closing,
            self.tasks,
            idle_seconds=settings.close_idle_after_seconds,
            parking=parking if settings.admission == "evict-idle" else None,
        )


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
