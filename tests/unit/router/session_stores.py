"""All that the stores of sessions can do, in one."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.fleet.worker_store import Identity
from kakeya_router.store.outcomes import EndOperation, RenewOperation
from kakeya_router.store.session_record import Claim, Incarnation, LaneState, PoolName, SessionRecord, WorkerId
from kakeya_router.store.sessions.closing_store import ClosingStore
from kakeya_router.store.sessions.creation_store import CreationStore
from kakeya_router.store.sessions.journal_store import JournalStore
from kakeya_router.store.sessions.lane_store import LaneStore
from kakeya_router.store.sessions.operation_store import OperationStore
from kakeya_router.store.sessions.session_changes import Closes
from kakeya_router.store.sessions.session_lists import SessionLists
from kakeya_router.store.sessions.session_store import Answer, Holder
from kakeya_router.store.sessions.snapshot_lists import SnapshotLists
from kakeya_router.store.sessions.tag_store import TagStore


class LaneAtRest(NamedTuple):
    """What a worker holds when an operation has ended, and the tokens that are not journaled yet."""

    history_length: int
    kv_live_bytes: int
    retained: str
    journal_length: int
    token_ids: Sequence[int] = ()
    num_rewinds: int = 0
    history_digest: int | None = None


class SessionStores(
    CreationStore, OperationStore, JournalStore, LaneStore, SnapshotLists, ClosingStore, SessionLists, TagStore
):
    """Args: as `Holder` takes them, whose leases last ten seconds where none is given."""

    def __init__(self, redis: RedisConnection, router_id: str = "router", **spans: Any) -> None:
        leases = {"operation_lease_ms": 10_000, "lane_lease_ms": 10_000, "grace_seconds": 0.0}
        super().__init__(redis, Holder(router_id=router_id, **leases | spans))

    async def end(
        self, record: SessionRecord, claim: Claim, at: LaneAtRest, *, closes: Closes = Closes.NONE
    ) -> Answer[EndOperation]:
        lane = LaneState(at.history_length, at.kv_live_bytes, at.retained, at.num_rewinds, at.history_digest)
        return await self.end_operation(record, claim, lane, at.journal_length, at.token_ids, closes=closes)

    async def renew_operation(self, record: SessionRecord, claim: Claim) -> RenewOperation:
        """One lease alone; raises what is raised for it."""
        (outcome,) = await self.renew_operations([(record, claim)])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def all_of(self, pool: PoolName) -> list[SessionRecord]:
        glances, _ = await self.page(pool, 0, 1000)
        return [glance.record for glance in glances]


def identity(worker_id: str, incarnation: str) -> Identity:
    """Of a worker of the pool "p"."""
    return Identity(PoolName("p"), WorkerId(worker_id), Incarnation(incarnation))
