"""What admission keeps in Redis, without routers and workers: stores, records, and sums to compare with."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.fleet.fleet_store import FleetStore
from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.keys import PoolKeys
from kakeya_router.store.outcomes import ReserveSession
from kakeya_router.store.session_record import (
    UNSET,
    Claim,
    Epoch,
    Incarnation,
    PoolName,
    SessionId,
    SessionRecord,
    State,
    WorkerId,
)
from kakeya_router.store.sessions.queue_store import Entry, Place, QueueStore
from kakeya_router.store.sessions.session_changes import UNLIMITED, Cause, Limits
from kakeya_router.store.sessions.session_store import Answer
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.workers.fleet import Fleet
from kakeya_shared.process.detached_tasks import DetachedTasks
from tests.unit.router.session_stores import SessionStores

POOL = PoolName("p")
OP = Claim("op")
KEYS = PoolKeys(POOL)
LANE_BYTES = 100


def worker_record(worker_id: str = "w", num_lanes: int = 2, **fields: Any) -> WorkerRecord:
    record = WorkerRecord(
        worker_id=WorkerId(worker_id),
        incarnation=Incarnation(f"i-{worker_id}"),
        pool=POOL,
        model="m",
        address="127.0.0.1:1",
        backend="fake",
        dtype="float32",
        slab_bytes=num_lanes * LANE_BYTES,
        lane_bytes=LANE_BYTES,
        num_lanes=num_lanes,
        sink=1,
        window=4,
        kv_bytes_per_token=10,
        vocab_size=100,
        num_threads=1,
    )
    return replace(record, **fields)


def session_record(name: str, tenant: str = "", worker_id: str = "w", **fields: Any) -> SessionRecord:
    record = SessionRecord(
        session_id=SessionId(f"p.{name}"),
        pool=POOL,
        state=State.OPENING,
        model="m",
        worker_id=WorkerId(worker_id),
        incarnation=Incarnation(f"i-{worker_id}"),
        address="127.0.0.1:1",
        epoch=Epoch(1),
        sink=UNSET,
        window=UNSET,
        vocab_size=100,
        reserved_bytes=LANE_BYTES,
        ttl_ms=60_000,
        tenant=tenant,
    )
    return replace(record, **fields)


@dataclass
class Stores:
    """Of the pool "p"; sessions and waiters are named by the tests."""

    redis: RedisConnection
    sessions: SessionStores
    workers: WorkerStore
    queue: QueueStore

    async def reserve(
        self, name: str, tenant: str = "", *, waiter_id: str = "", limits: Limits = UNLIMITED, **fields: Any
    ) -> Answer[ReserveSession]:
        return await self.sessions.reserve(session_record(name, tenant, **fields), OP, limits, waiter_id)

    async def opened(self, name: str, tenant: str = "", *, waiter_id: str = "", **fields: Any) -> SessionRecord:
        assert (await self.reserve(name, tenant, waiter_id=waiter_id, **fields)).outcome == "reserved"
        reply = await self.sessions.mark_open(session_record(name, tenant, **fields), OP, 1, 4)
        return reply.record

    async def close(self, record: SessionRecord, history_length: int = 0) -> None:
        assert (await self.sessions.begin_close(record, Claim("close"), Cause.ABANDON)).outcome == "claimed"
        assert await self.sessions.delete(record, Claim("close"), history_length)

    async def enter(
        self,
        waiter_id: str,
        tenant: str = "",
        *,
        queue: QueueStore | None = None,
        limits: Limits = UNLIMITED,
        returning: bool = False,
        **fields: Any,
    ) -> Entry:
        place = Place(
            waiter_id,
            tenant,
            fields.get("key_id", ""),
            fields.get("model", "m"),
            fields.get("fingerprint", ""),
            fields.get("refused", ()),
            LANE_BYTES,
            fields.get("ticket", ""),
        )
        return await (queue or self.queue).enter(POOL, place, limits, returning=returning)

    async def first(self, *worker_ids: str) -> dict[str, tuple[str, bool]]:
        found = await self.queue.first_waiters(POOL, [WorkerId(each) for each in worker_ids or ("w",)])
        return {turn.worker_id: (turn.waiter_id, turn.has_room) for turn in found}

    async def waiting(self) -> list[str]:
        """Ids of the waiters, tenant by tenant."""
        members = await self.redis.call(lambda redis: redis.zrange(KEYS.queue, 0, -1))
        return [member.split("|")[2] for member in members]

    async def kept_usage(self) -> dict[str, int]:
        fields = await self.redis.call(lambda redis: redis.hgetall(KEYS.usage))
        return {name: int(value) for name, value in fields.items()}

    async def true_usage(self) -> dict[str, int]:
        """The sums over the session records."""
        sums: Counter[str] = Counter()
        for record in await self.sessions.all_of(POOL):
            if record.holds_lane:
                sums[f"{record.tenant}|sessions"] += 1
                sums[f"{record.tenant}|bytes"] += record.reserved_bytes
                if record.key_id:
                    sums[f"key:{record.key_id}|sessions"] += 1
        return dict(sums)


@asynccontextmanager
async def stores_on(url: str) -> AsyncIterator[Stores]:
    connection = RedisConnection(url)
    sessions = SessionStores(connection)
    yield Stores(
        connection,
        sessions,
        WorkerStore(connection, worker_lease_seconds=60),
        QueueStore(connection, lease_seconds=60, queue_length=1000),
    )
    await connection.aclose()


def fleet_on(redis: RedisConnection, tasks: DetachedTasks) -> Fleet:
    """That looks when it is told to, and at all."""
    workers = WorkerStore(redis, worker_lease_seconds=60)
    return Fleet(workers, FleetStore(redis), tasks, lambda some: some, interval_seconds=3600)
