"""The queue of sessions that wait for a lane, one a pool, in Redis."""

import json
from collections.abc import Collection, Sequence
from dataclasses import KW_ONLY, dataclass

from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.keys import PoolKeys
from kakeya_router.store.outcomes import EnterQueue
from kakeya_router.store.script_calls import in_ms
from kakeya_router.store.session_record import Incarnation, PoolName, SessionId, WorkerId
from kakeya_router.store.sessions.session_changes import Limits
from kakeya_router.store.sessions.session_store import NO_QUOTA, ExceededQuota

# Of a `Place`, as enter_queue.lua takes it.
_WANTS = ("model", "fingerprint", "model_digest", "incarnation", "snapshot_store", "refused", "features")


@dataclass(frozen=True, slots=True)
class Place:
    """Who waits in a queue, and for what.

    Attributes:
        waiter_id: unguessable, so that two routers never make the same.
        model: that its workers serve.
        fingerprint: of the workers that it can use; empty: any.
        model_digest: of the model whose workers it can use whatever their fingerprint; empty: none.
        incarnation: the only one that it can use; empty: any.
        snapshot_store: the one that its worker has to read; empty: none.
        refused: incarnations that cannot hold the session.
        reserved_bytes: of the lane.
        features: that its worker has to name.
        ticket: from an earlier time in this queue; empty: it comes last.
    """

    waiter_id: str
    tenant: str
    key_id: str
    model: str
    fingerprint: str
    refused: Sequence[Incarnation]
    reserved_bytes: int
    ticket: str = ""
    incarnation: Incarnation = Incarnation("")
    snapshot_store: str = ""
    model_digest: str = ""
    features: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class FirstWaiter:
    """Who is first in the queue at a worker, and whether the worker has a free lane."""

    worker_id: WorkerId
    waiter_id: str
    has_room: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """What came of entering the queue: a ticket with WAITING, a quota with QUOTA."""

    outcome: EnterQueue
    ticket: str = ""
    quota: ExceededQuota = NO_QUOTA


@dataclass(frozen=True, slots=True)
class Renewal:
    """Ids of waiters that have something to learn.

    Attributes:
        displaced: are not in the queue any more, as their lease lapsed.
        answered: their request was answered elsewhere.
        evicted: made way for others in a full queue.
    """

    displaced: list[str]
    answered: list[str]
    evicted: list[str]


@dataclass(eq=False)
class QueueStore:
    """All methods raise StoreUnavailable.

    Attributes:
        lease_seconds: how long a waiter stays in the queue without a renewal.
        queue_length: how many may wait in the queue of a pool.
        grace_seconds: after an outage of Redis no waiter is removed for so long; its router could not renew it.
    """

    _redis: RedisConnection
    _: KW_ONLY
    lease_seconds: float
    queue_length: int
    grace_seconds: float = 0

    async def enter(self, pool: PoolName, place: Place, limits: Limits, *, returning: bool = False) -> Entry:
        """Enters the queue; who is `returning` from a worker that did not take it finds room in any case."""
        keys = PoolKeys(pool)
        outcome, rest = await self._redis.outcome(
            EnterQueue,
            [keys.queue, keys.waiters, keys.usage, keys.evicted],
            waiter_id=place.waiter_id,
            tenant=place.tenant,
            key_id=place.key_id,
            ticket=place.ticket,
            lease_ms=in_ms(self.lease_seconds),
            queue_length=0 if returning else self.queue_length,
            wants=json.dumps({name: getattr(place, name) for name in _WANTS}),
            may_clear=self._may_clear(),
            reserved_bytes=place.reserved_bytes,
            **limits._asdict(),
        )
        return Entry(outcome, quota=ExceededQuota(*rest)) if outcome is EnterQueue.QUOTA else Entry(outcome, *rest)

    async def leave(self, pool: PoolName, waiter_id: str) -> None:
        keys = PoolKeys(pool)
        await self._redis.script("leave_queue", [keys.queue, keys.waiters], waiter_id=waiter_id)

    async def renew(self, pool: PoolName, requests: Sequence[tuple[str, str, str]]) -> Renewal:
        """Renews waiters, each with its tenant and its request id."""
        keys = PoolKeys(pool)
        found = await self._redis.script(
            "renew_waiters",
            [keys.waiters, keys.evicted, *(keys.request(tenant, request_id) for _, tenant, request_id in requests)],
            lease_ms=in_ms(self.lease_seconds),
            waiter_ids=[waiter_id for waiter_id, _, _ in requests],
        )
        return Renewal(*found)

    async def incarnations(self, pool: PoolName, ids: Collection[SessionId]) -> dict[SessionId, Incarnation | None]:
        """On which workers sessions have their lanes, by id; empty: they have none. None: there is no such session."""
        keys = PoolKeys(pool)
        found = await self._redis.commands(("HGET", keys.session(each), "incarnation") for each in ids)
        return dict(zip(ids, found, strict=True))

    async def forget_lapsed(self, pool: PoolName) -> None:
        """Takes the waiters of vanished routers out of the queue, also when nobody else looks there."""
        if not self._may_clear():
            return
        keys = PoolKeys(pool)
        await self._redis.script("forget_waiters", [keys.queue, keys.waiters])

    async def first_waiters(self, pool: PoolName, worker_ids: Sequence[WorkerId]) -> list[FirstWaiter]:
        """Who is first in the queue at each of these workers, where a session waits."""
        keys = PoolKeys(pool)
        found = await self._redis.script(
            "first_waiters",
            [keys.queue, keys.waiters, keys.usage, *map(keys.worker, worker_ids)],
            may_clear=self._may_clear(),
        )
        return [FirstWaiter(worker_id, waiter_id, bool(has_room)) for worker_id, waiter_id, has_room in found]

    def _may_clear(self) -> bool:
        return self._redis.answers_for(self.grace_seconds)
