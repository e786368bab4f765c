"""What a router consists of, and how that is wired."""

from kakeya_router.access import access_guard
from kakeya_router.access.tenants import Tenants
from kakeya_router.api.admin_service import AdminService
from kakeya_router.api.call_gate import CallGate
from kakeya_router.api.models import Models
from kakeya_router.api.registry_service import RegistryService
from kakeya_router.api.runtime_service import RuntimeService
from kakeya_router.api.session_pages import SessionPages
from kakeya_router.api.stored_objects import StoredObjects
from kakeya_router.api.tunnelling import Tunnelling
from kakeya_router.api.watching import Watching
from kakeya_router.base import Base
from kakeya_router.contract.same_names import same_named
from kakeya_router.contract.validation import RequestLimits
from kakeya_router.lanes.admission_queue import AdmissionQueue
from kakeya_router.lanes.closing import Closing
from kakeya_router.lanes.idle_lanes import GivesWay, IdleLanes
from kakeya_router.lanes.moving import Moving
from kakeya_router.lanes.parking import Parking
from kakeya_router.lanes.resuming import Resuming
from kakeya_router.lanes.search import Search
from kakeya_router.operations.append import Appending
from kakeya_router.operations.generate import Generating
from kakeya_router.operations.needed_features import NeededFeatures
from kakeya_router.operations.operations import Operations
from kakeya_router.operations.recovery import Recovery
from kakeya_router.operations.settling import Settling
from kakeya_router.operations.turn import Turning
from kakeya_router.sessions.draining import Drainer
from kakeya_router.sessions.keeping import Keeping
from kakeya_router.sessions.opening import Opening
from kakeya_router.sessions.park_requests import ParkRequests
from kakeya_router.sessions.past_lanes import PastLanes
from kakeya_router.sessions.reaper import Reaper
from kakeya_router.sessions.rewinding import Rewinding
from kakeya_router.sessions.sessions import Sessions
from kakeya_router.sessions.sharing import Sharing
from kakeya_router.sessions.sources import Sources
from kakeya_router.sessions.tagging import Tagging
from kakeya_router.sessions.turns import Turns
from kakeya_router.settings import RouterSettings
from kakeya_router.store.access.rights import Quota
from kakeya_router.store.keys import ROOM
from kakeya_router.store.servers.subscription import messages
from kakeya_router.store.sessions.session_changes import TimesToLive
from kakeya_router.workers.fleet_gauges import FleetGauges
from kakeya_router.workers.fleet_reading import FleetReading
from kakeya_router.workers.ledger_audit import LedgerAudit
from kakeya_router.workers.worker_sweep import WorkerSweep

_GIVES_WAY = {
    "auto": GivesWay.IS_SAVED,
    "queue": GivesWay.NEVER,
    "reject": GivesWay.NEVER,
    "close-idle": GivesWay.IS_CLOSED,
    "evict-idle": GivesWay.IS_PARKED,
}


class Lanes:
    """How sessions come to lanes and leave them, and the queue for those that wait."""

    def __init__(self, settings: RouterSettings, base: Base) -> None:
        stores, workers, tasks = base.stores, base.workers, base.tasks
        self.closing = Closing(stores.closings, workers, base.snapshotting, tasks)
        self.parking = Parking(
            stores.lanes,
            workers,
            base.fleet,
            base.snapshotting,
            tasks,
            parked_seconds=settings.parked_ttl_seconds,
            metrics=base.metrics,
        )
        self.keeping = Keeping(
            stores.lists,
            base.fleet,
            self.parking,
            self.closing,
            tasks,
            max_children=settings.max_children,
            max_heads=settings.max_heads,
            max_parked=settings.parked_sessions,
            max_bytes=settings.snapshot_bytes,
        )
        idle_lanes = IdleLanes(
            stores.lists,
            self.closing,
            self.parking,
            tasks,
            idle_seconds=settings.close_idle_after_seconds,
            others=_GIVES_WAY[settings.admission],
            when_parked=self.keeping.look,
        )
        self.queue = AdmissionQueue(
            stores.queue,
            base.fleet,
            tasks,
            rooms=lambda: messages(settings.redis, settings.redis_timeout_seconds, ROOM),
            idle_lanes=idle_lanes,
        )
        self.search = Search(
            base.fleet,
            base.placement,
            self.queue,
            idle_lanes,
            base.metrics,
            wait_seconds=0.0 if settings.admission == "reject" else settings.queue_seconds or None,
        )
        self.resuming = Resuming(stores.lanes, stores.journals, stores.snapshots, workers, self.search)
        self.moving = Moving(stores.lanes, base.fleet, workers, base.placement, base.snapshotting, tasks, base.metrics)


class Work:
    """What is done with sessions: they are created, appended to, generated from, rewound and closed."""

    def __init__(self, settings: RouterSettings, base: Base, lanes: Lanes) -> None:
        stores, workers, snapshotting, tasks = base.stores, base.workers, base.snapshotting, base.tasks
        metrics = base.metrics
        times_to_live = TimesToLive(
            lost_ms=round(settings.lost_retention_seconds * 1000), parked_ms=settings.parked_ttl_seconds * 1000
        )
        self.limits = RequestLimits(**same_named(settings, RequestLimits.__dataclass_fields__))
        recovery = Recovery(stores.journals, workers, lanes.resuming, lanes.moving, tasks, metrics)
        self.operations = operations = Operations(
            stores.operations,
            workers,
            NeededFeatures(stores.operations, base.fleet),
            tasks,
            recovery,
            snapshotting,
            Settling(stores.operations, workers, lanes.closing, tasks, times_to_live, metrics),
            lanes.closing,
            lease_seconds=settings.operation_lease_seconds,
            metrics=metrics,
        )
        base.fleet.on_look = operations.running_now.see_workers
        base.probing.on_silent = operations.running_now.hear_silent
        self.appending = Appending(operations, recovery, snapshotting, workers, self.limits, metrics)
        self.generating = Generating(operations, recovery, self.appending, snapshotting, workers, self.limits, metrics)
        turning = Turning(operations, self.appending, self.generating, snapshotting, self.limits)
        self.rewinding = Rewinding(
            stores.journals, stores.tags, workers, base.fleet, operations, recovery, snapshotting, tasks
        )
        self.park_requests = ParkRequests(stores.lanes, operations, lanes.parking, tasks)
        sources = Sources(stores.creations, operations)
        past_lanes = PastLanes(stores.journals, workers)
        self.sessions = Sessions(
            stores.creations,
            stores.closings,
            stores.workers,
            base.fleet,
            tasks,
            lanes.search,
            Opening(stores.creations, past_lanes, workers, tasks, lanes.closing, sources, lanes.keeping),
            lanes.closing,
            sources,
            Sharing(stores.creations, tasks),
            metrics,
            default_ttl_seconds=settings.session_ttl_seconds,
            default_model=settings.default_model,
            key_max_sessions=settings.key_max_sessions,
        )
        self.sweep = WorkerSweep(stores.lists, stores.workers, times_to_live)
        self.tagging = Tagging(stores.tags, base.fleet, default_model=settings.default_model)
        self.turns = Turns(stores.operations, self.sessions, turning, self.tagging, tasks)


class Parts:
    """A router's parts, put together and not started yet: `Router` serves the services, runs the loops and closes
    what is open. Layer stands on layer, as in the rooms of the package: stores, lanes, work, services.
    """

    def __init__(self, settings: RouterSettings) -> None:
        """Raises PluginError, TlsError."""
        self.base = base = Base(settings)
        stores, seconds = base.stores, settings.reap_interval_seconds
        lanes = Lanes(settings, base)
        work = Work(settings, base, lanes)
        self.queue, self.renewals = lanes.queue, work.operations.renewals()
        self.reaper = Reaper(
            base.redis,
            stores.lists,
            stores.workers,
            stores.queue,
            work.sessions,
            lanes.keeping,
            work.sweep,
            base.workers,
            base.fleet,
            LedgerAudit(stores.workers),
            base.tasks,
            base.metrics,
            interval_seconds=seconds,
            grace_seconds=base.grace_seconds,
        )
        self.drainer = Drainer(stores.lists, base.fleet, work.park_requests, lanes.moving, interval_seconds=seconds)
        self.gate = CallGate(max_calls=settings.max_calls, max_calls_per_tenant=settings.max_calls_per_tenant)
        pages, models = SessionPages(stores.lists, stores.workers), Models(base.fleet, settings.default_model)
        self.runtime_service = RuntimeService(
            stores.operations,
            work.sessions,
            models,
            work.appending,
            work.generating,
            work.turns,
            work.rewinding,
            self.gate,
            work.limits,
            pages,
            work.park_requests,
            work.tagging,
            StoredObjects(stores.objects),
        )
        quota = Quota(settings.tenant_max_sessions, settings.tenant_max_bytes, settings.tenant_tokens_per_minute)
        self.guard = access_guard.guard(
            stores.credentials, quota, auth=settings.auth, admin_key=settings.admin_key, join_token=settings.join_token
        )
        self.tunnelling = Tunnelling(stores.workers, base.fleet, base.tunnels, self.guard)
        self.registry_service = _registry_service(settings, base, work, self.tunnelling)
        watching = Watching(base.board, self.gate, self.guard)
        self.admin_service = _admin_service(base, pages, work.sessions, quota, watching)
        self.fleet_reading = _fleet_reading(base, lanes.queue, work.operations, has_tenants=settings.auth == "keys")


def _admin_service(
    base: Base, pages: SessionPages, sessions: Sessions, quota: Quota, watching: Watching
) -> AdminService:
    stores = base.stores
    tenants = Tenants(stores.credentials, stores.lists, stores.workers, quota)
    return AdminService(stores.credentials, tenants, pages, sessions, stores.workers, base.tasks, watching)


def _fleet_reading(base: Base, queue: AdmissionQueue, operations: Operations, *, has_tenants: bool) -> FleetReading:
    def calls() -> tuple[int, int]:
        return queue.num_waiting, max(0, len(operations.running_now) - queue.num_returning)

    stores, gauges = base.stores, FleetGauges(base.metrics)
    return FleetReading(base.redis, stores.workers, stores.lists, gauges, calls=calls, has_tenants=has_tenants)


def _registry_service(settings: RouterSettings, base: Base, work: Work, tunnelling: Tunnelling) -> RegistryService:
    return RegistryService(
        base.stores.workers,
        base.stores.heartbeats,
        base.fleet,
        work.sweep,
        base.snapshotting,
        tunnelling,
        heartbeat_interval_seconds=settings.heartbeat_interval_seconds,
        worker_lease_seconds=settings.worker_lease_seconds,
    )
