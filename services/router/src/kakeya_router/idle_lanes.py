"""Lanes of idle sessions, for those who wait: `--admission close-idle`."""

from collections.abc import AsyncIterator, Collection, Mapping

import structlog

from kakeya_router.closing import Closing
from kakeya_router.detached_tasks import DetachedTasks
from kakeya_router.store.records import SessionRecord
from kakeya_router.store.session_store import Cause, SessionStore, TenantUsage

_BATCH = 128

_log = structlog.get_logger()


class IdleLanes:
    """Closes sessions that nobody uses.

    Args:
        idle_seconds: how long a session must have been idle.
    """

    def __init__(self, store: SessionStore, closing: Closing, tasks: DetachedTasks, *, idle_seconds: float) -> None:
        self._store = store
        self._closing = closing
        self._tasks = tasks
        self._idle_ms = round(idle_seconds * 1000)

    async def make_room(self, tenant: str, turns: Mapping[str, Collection[str]], *, spared: str = "") -> bool:
        """Closes the session that has been idle for longest and may go; whether there was one.

        It is the tenant's own, or of a tenant that holds two lanes more at least: nobody takes from who then has less.

        Args:
            tenant: wants a lane.
            turns: the workers on which one would help, by pool.
            spared: id of a session that must stay.
        """
        found = [
            record
            for pool, worker_ids in turns.items()
            for record in await self._oldest(pool, worker_ids, tenant, spared)
        ]
        for record in sorted(found, key=lambda record: record.idle_since_ms):
            closing = self._closing.close(record, Cause.IDLE, idle_ms=self._idle_ms, wanted_by=tenant)
            if await self._tasks.complete(closing) is not None:
                _log.info("idle session closed for its lane", session_id=record.session_id, wanted_by=tenant)
                return True
        return False

    async def _oldest(self, pool: str, worker_ids: Collection[str], tenant: str, spared: str) -> list[SessionRecord]:
        """Of those that may go; at most one."""
        usage = await self._store.usage(pool)
        held = usage.get(tenant, TenantUsage()).reserved_bytes
        async for record in self._idle(pool):
            if record.session_id == spared:
                continue
            owner = usage.get(record.tenant, TenantUsage())
            if record.worker_id in worker_ids and (
                record.tenant == tenant or owner.reserved_bytes >= held + 2 * record.reserved_bytes
            ):
                return [record]
        return []

    async def _idle(self, pool: str) -> AsyncIterator[SessionRecord]:
        """The longest idle first."""
        start = 0
        while records := await self._store.idle(pool, self._idle_ms, start, _BATCH):
            for record in records:
                yield record
            start += _BATCH
