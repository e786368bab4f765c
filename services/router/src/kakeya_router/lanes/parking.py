"""Parks sessions, so that others can have their lanes; the next call of one resumes it."""

import asyncio
import time
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

import structlog

from kakeya_router.metrics import RouterMetrics, no_metrics
from kakeya_router.snapshots.snapshotting import Snapshotting
from kakeya_router.store.connection import is_done
from kakeya_router.store.outcomes import ParkSession
from kakeya_router.store.session_record import Incarnation, SessionRecord
from kakeya_router.store.sessions.lane_store import LaneStore
from kakeya_router.store.sessions.session_store import Answer
from kakeya_router.workers.fleet import Fleet
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_router.workers.worker_errors import WorkerError
from kakeya_shared.errors.tree import KakeyaError, SnapshotStoreUnavailable, StoreUnavailable
from kakeya_shared.process.detached_tasks import DetachedTasks

_log = structlog.get_logger()

Reason = Literal["request", "drain", "room", "idle"]
"""Why a session is parked: a client or an operator wants it, another its lane, or it is idle for as long as it may."""

# A waiter may need the lane.
_WRITE_SECONDS = 5.0
# A store that does not work is not tried for each session of a worker.
_MISTRUST_SECONDS = 1.0


@dataclass(eq=False, slots=True)
class Parking:
    """Parks sessions on which no operation runs: what has no snapshot yet is written, then the lane is closed.

    It does not hold the session meanwhile: a call that comes while a snapshot is written wins, and the script that
    parks does it in one step. Called by `ParkRequests`, by `IdleLanes` for a waiter that needs the lane, by `Keeping`.

    Attributes:
        parked_seconds: how long a session without a lane is kept.
    """

    _store: LaneStore
    _workers: WorkerClients
    _fleet: Fleet
    _snapshotting: Snapshotting
    _tasks: DetachedTasks
    _: KW_ONLY
    parked_seconds: float
    metrics: RouterMetrics = field(default_factory=no_metrics)
    _mistrusted_until: dict[Incarnation, float] = field(default_factory=dict, init=False)  # stores, by incarnation

    async def park(
        self, record: SessionRecord, reason: Reason, *, idle_ms: int | None = None, wanted_by: str = ""
    ) -> Answer[ParkSession]:
        """Writes what a session has gained since its last snapshot, parks it, and has its lane closed.

        Args:
            idle_ms: only if it has been idle for so long, and gives way to the tenant that wants its lane.

        Returns:
            The answer of park_session.lua.

        Raises:
            StoreUnavailable
        """
        began = time.monotonic()
        is_written = record.holds_lane and await self._write(record)
        parked_ms = round(self.parked_seconds * 1000)
        answer = await self._store.park(
            record, parked_ms, by_journal=not is_written, idle_ms=idle_ms, wanted_by=wanted_by
        )
        if is_done(answer.outcome):
            await self._workers.close_lane(record)
            self.metrics.park_seconds.labels(reason).observe(time.monotonic() - began)
        return answer

    async def saves(self, record: SessionRecord) -> bool:
        """Whether a session's worker has a snapshot store for it."""
        worker = await self._fleet.looked_up(record.incarnation)
        return worker is not None and record.can_be_stored(worker.snapshot_store)

    async def _write(self, record: SessionRecord) -> bool:
        """Whether the snapshot store works. What it has not of the session, since that was used, the journal has."""
        if not record.journal_length:
            return False  # there is nothing to write
        worker = await self._fleet.looked_up(record.incarnation)
        if worker is None or not record.can_be_stored(worker.snapshot_store):
            return False
        if time.monotonic() < self._mistrusted_until.get(record.incarnation, 0.0):
            return False
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                # What is late is written all the same, so that no file is left of which nobody knows.
                await self._tasks.complete(self._snapshotting.write_rest(record, worker))
        except StoreUnavailable:
            raise
        except (WorkerError, KakeyaError, TimeoutError) as error:
            _log.info("no snapshot before parking", session_id=record.session_id, error=repr(error))
            if isinstance(error, TimeoutError):
                self._mistrusted_until[record.incarnation] = time.monotonic() + 2 * _WRITE_SECONDS
            elif isinstance(error, SnapshotStoreUnavailable):
                self._mistrusted_until[record.incarnation] = time.monotonic() + _MISTRUST_SECONDS
            return False
        return True
