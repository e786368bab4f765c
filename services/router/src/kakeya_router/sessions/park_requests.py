"""Parking a session on request: of its client, or since its worker drains."""

from dataclasses import dataclass

import structlog

from kakeya_router.contract import refusals
from kakeya_router.lanes.parking import Parking, Reason
from kakeya_router.operations.operations import Operations
from kakeya_router.store.outcomes import ParkSession
from kakeya_router.store.session_record import Incarnation, SessionRecord
from kakeya_router.store.sessions.session_changes import Intent
from kakeya_router.store.sessions.session_store import SessionStore
from kakeya_shared.process.detached_tasks import DetachedTasks

_INTENT = Intent("park", {}, is_charged=False)

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Parked:
    """A session without a lane; `freed_bytes` are those of the lane that it had until now."""

    history_length: int
    freed_bytes: int


@dataclass(eq=False, slots=True)
class ParkRequests:
    """Parks sessions, and says why one cannot be parked.

    What a vanished router left on a session is ended first. Called by `RuntimeService` for a client, and by `Drainer`.
    """

    _store: SessionStore
    _operations: Operations
    _parking: Parking
    _tasks: DetachedTasks

    async def park(self, record: SessionRecord, *, only_off: Incarnation = Incarnation("")) -> Parked:
        """Parks a session, also where the caller leaves meanwhile.

        Args:
            record: as it was read last.
            only_off: an incarnation; a session that has left it since stays where it is now.

        Raises:
            SessionNotFound, WorkerLost, InvariantViolated: there is none any more.
            OperationRunning: it is in use.
            SnapshotStoreUnavailable: its history would not be kept; the session stays as it is.
            StoreUnavailable
        """
        return await self._tasks.complete(self._park(record, only_off))

    async def _park(self, record: SessionRecord, only_off: Incarnation) -> Parked:
        reason: Reason = "drain" if only_off else "request"
        answer = await self._parking.park(record, reason)
        while answer.outcome in (ParkSession.LEFT, ParkSession.CHANGED):
            if answer.outcome is ParkSession.LEFT:
                async with self._operations.running(record, _INTENT):
                    pass  # on the way in, what was left behind is ended
            now = await self._store.get(record.session_id)
            if now is None:
                raise refusals.not_found()
            if only_off and now.incarnation != only_off:
                return Parked(max(now.history_length, now.journal_length), 0)
            record = now
            answer = await self._parking.park(record, reason)
        before, freed_bytes = answer.record, 0
        match answer.outcome:
            case ParkSession.UNRECOVERABLE | ParkSession.KEPT:  # this asks of none that it gives way
                raise refusals.cannot_park()
            case ParkSession.PARKED:
                freed_bytes = before.reserved_bytes
                _log.info("session parked", session_id=before.session_id, worker_id=before.worker_id)
            case ParkSession.NO_LANE:
                pass
            case refused:
                raise refusals.refusal(refused, before)
        return Parked(max(before.history_length, before.journal_length), freed_bytes)
