"""Lanes of idle sessions, for the sessions that queue: `--admission close-idle` and `evict-idle`."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass

import structlog

from kakeya_router.lanes.closing import Closing
from kakeya_router.lanes.parking import Parking
from kakeya_router.store.done import is_done
from kakeya_router.store.session_record import PoolName, SessionId, SessionRecord, WorkerId
from kakeya_router.store.sessions.session_changes import Cause
from kakeya_router.store.sessions.session_lists import SessionLists, TenantUsage
from kakeya_shared.process.detached_tasks import DetachedTasks

_BATCH = 128

_log = structlog.get_logger()


@dataclass(eq=False, slots=True)
class IdleLanes:
    """Frees the lanes of idle sessions: the one that has been idle for longest goes first.

    Its owner must not have less afterwards than who wanted the lane. Called by `AdmissionQueue` for the first in the
    queue, and only with `--admission close-idle` or `evict-idle`.

    Attributes:
        idle_seconds: how long a session must have been idle.
        parking: parks them; None: they are closed.
    """

    _store: SessionLists
    _closing: Closing
    _tasks: DetachedTasks
    _: KW_ONLY
    idle_seconds: float
    parking: Parking | None = None

    async def make_room(self, tenant: str, turns: Mapping[PoolName, Collection[WorkerId]], spared: SessionId) -> bool:
        """Frees the lane of the session that has been idle for longest and may go; whether there was one.

        It is the tenant's own, or of a tenant that holds two lanes more at least.

        Args:
            tenant: wants a lane.
            turns: the workers on which one would help, by pool.
            spared: id of a session that must stay.
        """
        async with aclosing(self._longest_idle(tenant, turns, spared)) as found:
            async for record in found:
                if await self._tasks.complete(self._frees(record, tenant)):
                    return True
        return False

    async def _frees(self, record: SessionRecord, tenant: str) -> bool:
        idle_ms = self._idle_ms
        if self.parking is None:
            closed = await self._closing.close(record, Cause.IDLE, idle_ms=idle_ms, wanted_by=tenant)
            is_free, what = closed is not None, "closed"
        else:
            answer = await self.parking.park(record, idle_ms=idle_ms, wanted_by=tenant)
            is_free, what = is_done(answer.outcome), "parked"
        if is_free:
            _log.info(f"idle session {what} for its lane", session_id=record.session_id, wanted_by=tenant)
        return is_free

    @property
    def _idle_ms(self) -> int:
        return round(self.idle_seconds * 1000)

    async def _longest_idle(
        self, tenant: str, turns: Mapping[PoolName, Collection[WorkerId]], spared: SessionId
    ) -> AsyncGenerator[SessionRecord, None]:
        """Of those that may go in all pools, the longest idle first."""
        pools = [self._of_pool(pool, worker_ids, tenant, spared) for pool, worker_ids in turns.items()]
        firsts = [(first, pool) for pool in pools if (first := await anext(pool, None)) is not None]
        while firsts:
            oldest, pool = min(firsts, key=lambda each: each[0].idle_since_ms)
            yield oldest
            firsts.remove((oldest, pool))
            if (following := await anext(pool, None)) is not None:
                firsts.append((following, pool))

    async def _of_pool(
        self, pool: PoolName, worker_ids: Collection[WorkerId], tenant: str, spared: SessionId
    ) -> AsyncIterator[SessionRecord]:
        """Of those that may go in a pool, the longest idle first."""
        usage = await self._store.usage(pool)
        held = usage.get(tenant, TenantUsage()).reserved_bytes
        start = 0
        while records := await self._store.idle(pool, self._idle_ms, start, _BATCH):
            for record in records:
                owner = usage.get(record.tenant, TenantUsage())
                gives_way = record.tenant == tenant or owner.reserved_bytes >= held + 2 * record.reserved_bytes
                if record.session_id != spared and record.worker_id in worker_ids and gives_way:
                    yield record
            start += _BATCH
