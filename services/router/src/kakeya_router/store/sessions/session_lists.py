"""Sessions of a pool, many at once: those that are due, idle or on a worker, and what tenants use."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kakeya_router.store.keys import PoolKeys, keys_of
from kakeya_router.store.outcomes import LoseSession
from kakeya_router.store.session_record import Incarnation, PoolName, SessionId, SessionRecord, State
from kakeya_router.store.sessions import stored_tags
from kakeya_router.store.sessions.session_changes import INTERRUPTED, TimesToLive
from kakeya_router.store.sessions.session_store import Glance, SessionStore


@dataclass(frozen=True, slots=True)
class TenantUsage:
    """What a tenant uses in a pool: lanes, their bytes, and calls in the queue."""

    num_sessions: int = 0
    reserved_bytes: int = 0
    num_waiting: int = 0


class SessionLists(SessionStore):
    """Reads many sessions at once, and takes those of a lost worker off their lanes."""

    async def expired(self, pool: PoolName, limit: int) -> list[SessionRecord]:
        """Sessions whose time has come, longest overdue first."""
        expiry = PoolKeys(pool).expiry
        now_ms = await self._redis.now_ms()
        ids = await self._redis.call(lambda redis: redis.zrangebyscore(expiry, "-inf", now_ms, 0, limit))
        return await self._there(pool, ids)

    async def _forget_all(self, pool: PoolName, session_ids: Collection[SessionId]) -> None:
        """What Redis has left of sessions whose records it has evicted."""
        if not session_ids:
            return
        keys = PoolKeys(pool)
        tags = await self._redis.hashes([keys.tags(session_id) for session_id in session_ids])
        await self._redis.commands(
            command
            for session_id, held in zip(session_ids, tags, strict=True)
            for command in (
                *stored_tags.removals(session_id, held),
                ("DEL", keys.operation(session_id), keys.journal(session_id), keys.tags(session_id)),
                *(("ZREM", key, session_id) for key in (keys.idle, keys.to_park, keys.spare, keys.parked)),
            )
        )
        # Last of all: until then the reaper finds them again.
        await self._redis.script("forget_evicted", [keys.expiry, keys.snapshot_bytes], session_ids=sorted(session_ids))

    async def idle(self, pool: PoolName, idle_ms: int, start: int, limit: int) -> list[SessionRecord]:
        """Sessions that have been idle for so long, the longest first, from the `start`th on."""
        key = PoolKeys(pool).idle
        until_ms = await self._redis.now_ms() - idle_ms
        ids = await self._redis.call(lambda redis: redis.zrangebyscore(key, "-inf", until_ms, start, limit))
        return await self.records(pool, ids)

    async def spare(
        self, pool: PoolName, start: int, limit: int, *, tenant: str | None = None
    ) -> list[tuple[int, SessionRecord]]:
        """Sessions that make room, in their order, from the `start`th on, each with its rank: negative of one that
        costs less to prefill anew than to park, else the time of its last operation's end in milliseconds.

        Args:
            tenant: whose they are; None: of all tenants.
        """
        keys = PoolKeys(pool)
        key = keys.spare if tenant is None else keys.spare_of(tenant)
        stop = start + limit - 1
        while True:
            ranks = dict(await self._redis.call(lambda redis: redis.zrange(key, start, stop, withscores=True)))
            records = await self.records(pool, [*ranks])
            if gone := ranks.keys() - {record.session_id for record in records}:  # closed, or evicted by Redis
                await self._redis.commands([("ZREM", key, *gone)])
            if records or not gone:
                return [(int(ranks[record.session_id]), record) for record in records]

    async def take_due(self, pool: PoolName, limit: int, again_ms: int) -> list[SessionRecord]:
        """Takes sessions that are to be parked by now; those that are not are due again after so long."""
        key = PoolKeys(pool).to_park
        ids: list[SessionId] = await self._redis.script("take_due", [key], limit=limit, again_ms=again_ms)
        return await self._there(pool, ids)

    async def surplus(self, record: SessionRecord, limit: int) -> list[SessionRecord]:
        """Of a session's group those that are too many, the least recently used first; not the session itself.

        Args:
            limit: how many may stay.
        """
        keys = PoolKeys(record.pool)
        found = await self._redis.script(
            "find_surplus",
            [keys.groups, keys.spare, keys.parked],
            tenant=record.tenant,
            group=record.group,
            limit=limit,
            spared=record.session_id,
            session=keys.session(SessionId("")),
        )
        return await self.records(record.pool, found)

    async def kept(self, pool: PoolName) -> tuple[int, int]:
        """How many parked disposable sessions a pool keeps, and how many bytes of snapshots."""
        keys = PoolKeys(pool)
        num_parked, num_bytes = await self._redis.commands([("ZCARD", keys.parked), ("GET", keys.snapshot_bytes)])
        return num_parked, int(num_bytes or 0)

    async def longest_parked(self, pool: PoolName, limit: int) -> list[SessionRecord]:
        """Parked disposable sessions, those first that nobody has used for longest."""
        key = PoolKeys(pool).parked
        return await self._there(pool, await self._redis.call(lambda redis: redis.zrange(key, 0, limit - 1)))

    async def _there(self, pool: PoolName, session_ids: Sequence[SessionId]) -> list[SessionRecord]:
        """Records of sessions of a list; of those that are not there what is left is forgotten."""
        records = await self.records(pool, session_ids)
        await self._forget_all(pool, {*session_ids}.difference(record.session_id for record in records))
        return records

    async def page(self, pool: PoolName, cursor: int, limit: int) -> tuple[list[Glance], int]:
        """Some of a pool's sessions, in no order, and where the next page begins; 0: this was the last, or is to be the
        first.

        Who was there from the first page to the last comes once at least. `limit` is what Redis aims at: a page
        can hold fewer, and up to some hundred more.
        """
        expiry = PoolKeys(pool).expiry
        next_cursor, found = await self._redis.call(lambda redis: redis.zscan(expiry, cursor, count=limit))
        records = await self.records(pool, [session_id for session_id, _ in found])
        return await self._glances(pool, records), int(next_cursor)

    async def usage(self, pool: PoolName) -> dict[str, TenantUsage]:
        """By tenant; "" is who calls without a key."""
        keys = PoolKeys(pool)
        fields, members = await self._redis.commands([("HGETALL", keys.usage), ("ZRANGE", keys.queue, 0, -1)])
        waiting = Counter(member.split("|", 1)[0] for member in members)
        del waiting[INTERRUPTED]
        held = {name.split("|", 1)[0] for name in fields if not name.startswith("key:")}
        return {
            tenant: TenantUsage(
                int(fields.get(f"{tenant}|sessions", 0)), int(fields.get(f"{tenant}|bytes", 0)), waiting[tenant]
            )
            for tenant in sorted(held | set(waiting))
        }

    async def of_incarnation(self, pool: PoolName, incarnation: Incarnation, limit: int) -> list[SessionRecord]:
        """Some of the sessions whose lanes an incarnation holds, or held."""
        key = PoolKeys(pool).sessions(incarnation)
        return await self.records(pool, await self._redis.call(lambda redis: redis.srandmember(key, limit)))

    async def idle_of(self, pool: PoolName, incarnation: Incarnation, limit: int) -> list[SessionRecord]:
        """Of some of the sessions on an incarnation's lanes, those that are open and on which no operation runs."""
        records = [  # one can have moved between its listing and its reading
            record
            for record in await self.of_incarnation(pool, incarnation, limit)
            if record.state is State.OPEN and record.incarnation == incarnation
        ]
        return [glance.record for glance in await self._glances(pool, records) if not glance.busy]

    async def lose_all(self, records: Sequence[SessionRecord], times_to_live: TimesToLive) -> list[LoseSession]:
        """Takes sessions off the lanes of a gone incarnation; returns each one's outcome, see lose_session.lua."""
        for_all = {"claim": "", "start": 0, "tokens": "", "for_good": False, **times_to_live._asdict()}
        return await self._redis.outcomes(
            LoseSession,
            (
                (keys_of(record), for_all | {"session_id": record.session_id, "incarnation": record.incarnation})
                for record in records
            ),
        )
