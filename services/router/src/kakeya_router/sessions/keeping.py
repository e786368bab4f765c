"""Sessions that are kept although nobody uses them: when one is parked by itself, and how many there may be."""

from dataclasses import KW_ONLY, dataclass, field

import structlog

from kakeya_router.lanes.closing import Closing
from kakeya_router.lanes.parking import Parking
from kakeya_router.store.connection import is_done
from kakeya_router.store.session_record import PoolName, SessionRecord
from kakeya_router.store.sessions.session_changes import Cause, ClosedOnly
from kakeya_router.store.sessions.session_lists import SessionLists
from kakeya_router.store.sessions.stored_snapshots import parse
from kakeya_router.workers.fleet import Fleet
from kakeya_shared.process.detached_tasks import DetachedTasks, unheard

# In a pass of the reaper: so many are parked, each of which may write a snapshot, and so many closed.
_MOST_PARKED, _MOST_CLOSED = 32, 128
# Of the bytes that may be kept: what a pass of the reaper comes too late for is to fit, too.
_FULL = 0.9
_PART_OF_DISK = 0.1
# Longer than the writing of a snapshot is waited for; a session that cannot be parked now is tried again then.
_AGAIN_MS = 30_000

_log = structlog.get_logger()


@dataclass(eq=False, slots=True)
class Keeping:
    """Parks sessions whose time on a lane is over, and closes disposable ones of which there are too many.

    Each session is looked for by one router at a time, and taken by one script, so that several at once are harmless.
    Called by `Reaper`, by `IdleLanes` where it has parked one, and by `Opening` for the group of a session that it has
    opened.

    Attributes:
        max_children: how many disposable forks of one place a tenant keeps.
        max_heads: how many heads a tenant keeps in a pool.
        max_parked: how many parked disposable sessions a pool keeps; 0: no limit.
        max_bytes: how many bytes of snapshots; 0: no limit; None: a part of what was free on the workers' disks.
    """

    _store: SessionLists
    _fleet: Fleet
    _parking: Parking
    _closing: Closing
    _tasks: DetachedTasks
    _: KW_ONLY
    max_children: int
    max_heads: int
    max_parked: int
    max_bytes: int | None
    _looking: dict[PoolName, bool] = field(default_factory=dict, init=False)
    """Pools that are looked at now; True: once more then."""

    async def park_due(self, pool: PoolName) -> None:
        """Begins to park some of those whose time is over; raises StoreUnavailable."""
        for record in await self._store.take_due(pool, _MOST_PARKED, _AGAIN_MS):
            unheard(self._tasks.start(self._park(record)))

    def trim(self, record: SessionRecord) -> None:
        """Begins to close those that are too many of the group of a session that was just opened.

        Where that comes to nothing, as when this router is lost, the group has one more until the next is opened.
        """
        if record.group:
            unheard(self._tasks.start(self._trim(record)))

    def look(self, pool: PoolName) -> None:
        """Begins to close what a pool keeps too much, as it has come to keep more; a crowd can fill it between two
        passes of the reaper.
        """
        is_looking = pool in self._looking
        self._looking[pool] = is_looking
        if not is_looking:
            unheard(self._tasks.start(self._look(pool)))

    async def _look(self, pool: PoolName) -> None:
        try:
            await self.close_surplus(pool)
            while self._looking[pool]:
                self._looking[pool] = False
                await self.close_surplus(pool)
        finally:
            del self._looking[pool]

    async def close_surplus(self, pool: PoolName) -> None:
        """Closes the parked disposable sessions that nobody has used for longest, where the pool keeps too much.

        Raises StoreUnavailable.
        """
        num_parked, num_bytes = await self._store.kept(pool)
        if not num_parked:
            return
        max_bytes = int(_FULL * (await self._max_bytes(pool)))
        num_over = num_parked - self.max_parked if self.max_parked else 0
        bytes_over = num_bytes - max_bytes if max_bytes else 0
        if num_over <= 0 and bytes_over <= 0:
            return
        for record in await self._store.longest_parked(pool, _MOST_CLOSED):
            bound: ClosedOnly = {"max_parked": self.max_parked, "max_bytes": max_bytes}
            if await self._closing.close(record, Cause.BOUND, **bound) is not None:
                _log.info("parked session closed, too much is kept", session_id=record.session_id)
                num_over -= 1
                bytes_over -= sum(each.size_bytes for each in parse(record.snapshots))
            if num_over <= 0 and bytes_over <= 0:
                return

    async def _max_bytes(self, pool: PoolName) -> int:
        """0: no limit, as where some store does not say what is free."""
        if self.max_bytes is not None:
            return self.max_bytes
        workers = self._fleet.workers(pool)
        free = {worker.snapshot_store: worker.snapshot_free_bytes for worker in workers if worker.snapshot_store}
        return int(_PART_OF_DISK * sum(free.values())) if all(free.values()) else 0

    async def _park(self, record: SessionRecord) -> None:
        """Where its worker has no snapshot store, it stays: resuming it would cost a prefill of all."""
        if not await self._parking.saves(record):
            return
        answer = await self._parking.park(record, "idle", idle_ms=record.park_after_ms, wanted_by=record.tenant)
        if is_done(answer.outcome):
            _log.info("session parked, as nobody uses it", session_id=record.session_id)

    async def _trim(self, record: SessionRecord) -> None:
        limit = self.max_heads if record.head else self.max_children
        for each in await self._store.surplus(record, limit):
            if await self._closing.close(each, Cause.SURPLUS, limit=limit) is not None:
                _log.info("session closed, one of too many", session_id=each.session_id, group=record.group)
