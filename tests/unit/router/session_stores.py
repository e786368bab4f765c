"""All that the stores of sessions can do, in one."""

from typing import Any

from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.fleet.worker_store import Identity
from kakeya_router.store.session_record import Incarnation, PoolName, WorkerId
from kakeya_router.store.sessions.closing_store import ClosingStore
from kakeya_router.store.sessions.creation_store import CreationStore
from kakeya_router.store.sessions.journal_store import JournalStore
from kakeya_router.store.sessions.lane_store import LaneStore
from kakeya_router.store.sessions.operation_store import OperationStore
from kakeya_router.store.sessions.session_lists import SessionLists
from kakeya_router.store.sessions.session_store import Holder
from kakeya_router.store.sessions.snapshot_lists import SnapshotLists


class SessionStores(CreationStore, OperationStore, JournalStore, LaneStore, SnapshotLists, ClosingStore, SessionLists):
    """Args: as `Holder` takes them, whose leases last ten seconds where none is given."""

    def __init__(self, redis: RedisConnection, router_id: str = "router", **seconds: Any) -> None:
        leases = {"operation_lease_seconds": 10.0, "lane_lease_seconds": 10.0, "grace_seconds": 0.0}
        super().__init__(redis, Holder(router_id=router_id, **leases | seconds))


def identity(worker_id: str, incarnation: str) -> Identity:
    """Of a worker of the pool "p"."""
    return Identity(PoolName("p"), WorkerId(worker_id), Incarnation(incarnation))
