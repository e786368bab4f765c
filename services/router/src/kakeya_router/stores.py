"""All of a router's state, by the parts that are given it."""

import secrets

from kakeya_router.lanes.admission_queue import LEASE_SECONDS
from kakeya_router.lanes.closing import LANE_LEASE_SECONDS
from kakeya_router.settings import RouterSettings
from kakeya_router.store.access.credential_store import CredentialStore
from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.fleet.fleet_store import FleetStore
from kakeya_router.store.fleet.heartbeat_store import HeartbeatStore
from kakeya_router.store.fleet.tunnel_store import TunnelStore
from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.object_store import ObjectStore
from kakeya_router.store.script_calls import in_ms
from kakeya_router.store.sessions.closing_store import ClosingStore
from kakeya_router.store.sessions.creation_store import CreationStore
from kakeya_router.store.sessions.journal_store import JournalStore
from kakeya_router.store.sessions.lane_store import LaneStore
from kakeya_router.store.sessions.operation_store import OperationStore
from kakeya_router.store.sessions.queue_store import QueueStore
from kakeya_router.store.sessions.session_lists import SessionLists
from kakeya_router.store.sessions.session_store import Holder
from kakeya_router.store.sessions.snapshot_lists import SnapshotLists
from kakeya_router.store.sessions.tag_store import TagStore
from kakeya_shared.process.detached_tasks import DetachedTasks


class Stores:
    """All of the router's state: every part is given the stores that it needs. All go over one connection to Redis."""

    def __init__(
        self, settings: RouterSettings, redis: RedisConnection, tasks: DetachedTasks, grace_seconds: float
    ) -> None:
        holder = Holder(
            router_id=secrets.token_hex(4),
            operation_lease_ms=in_ms(settings.operation_lease_seconds),
            lane_lease_ms=in_ms(LANE_LEASE_SECONDS),
            grace_seconds=grace_seconds,
            waiter_grace_seconds=LEASE_SECONDS,
        )
        self.workers = WorkerStore(redis, settings.worker_lease_seconds)
        self.heartbeats = HeartbeatStore(redis, tasks, settings.worker_lease_seconds)
        self.fleet = FleetStore(redis)
        self.tunnels = TunnelStore(redis)
        self.credentials = CredentialStore(redis)
        self.objects = ObjectStore(redis)
        self.queue = QueueStore(
            redis, lease_seconds=LEASE_SECONDS, queue_length=settings.queue_length, grace_seconds=LEASE_SECONDS
        )
        self.creations = CreationStore(redis, holder)
        self.closings = ClosingStore(redis, holder)
        self.lanes = LaneStore(redis, holder)
        self.operations = OperationStore(redis, holder)
        self.journals = JournalStore(redis, holder)
        self.snapshots = SnapshotLists(redis, holder)
        self.lists = SessionLists(redis, holder)
        self.tags = TagStore(redis, holder)
