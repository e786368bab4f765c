"""Resumes sessions: one without a lane, parked or lost with its worker, gets another, for the operation on it."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import assert_never, cast

import structlog

from kakeya_router.access.callers import Caller
from kakeya_router.contract import refusals
from kakeya_router.lanes import candidates
from kakeya_router.lanes.restoring import restored
from kakeya_router.lanes.search import Refused, Search
from kakeya_router.lanes.wanted import Wanted
from kakeya_router.snapshots import past
from kakeya_router.snapshots.past import Past
from kakeya_router.store.outcomes import LoseLane, ResumeSession
from kakeya_router.store.session_record import Claim, Features, Incarnation, LaneState, SessionRecord
from kakeya_router.store.sessions import stored_snapshots
from kakeya_router.store.sessions.journal_store import JournalStore
from kakeya_router.store.sessions.lane_store import LaneStore
from kakeya_router.store.sessions.session_store import Taken
from kakeya_router.store.sessions.snapshot_lists import SnapshotLists
from kakeya_router.store.sessions.stored_snapshots import StoredSnapshot
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_router.workers.worker_errors import WorkerError
from kakeya_shared.errors.tree import (
    InvalidField,
    KakeyaError,
    SnapshotStoreUnavailable,
    StoreUnavailable,
    WorkerLost,
)

_log = structlog.get_logger()

Resumed = tuple[SessionRecord, LaneState]


@dataclass(eq=False, slots=True)
class Resuming:
    """Resumes sessions: `Search` finds a worker, which restores the newest snapshot that it reads into a new lane.

    What the journal has after that snapshot is left to the caller: `Recovery`, for each operation whose session has no
    lane or has lost it.
    """

    _store: LaneStore
    _journals: JournalStore
    _snapshots: SnapshotLists
    _workers: WorkerClients
    _search: Search

    async def lose_lane(self, record: SessionRecord, claim: Claim) -> SessionRecord:
        """Parks a session whose lane is gone; raises WorkerLost, Taken or StoreUnavailable."""
        answer = await self._store.lose_lane(record, claim)
        match answer.outcome:
            case LoseLane.PARKED:
                return answer.record
            case LoseLane.LOST:
                raise refusals.lost()
            case LoseLane.GONE:
                raise Taken
            case never:
                assert_never(never)

    async def resume(
        self,
        record: SessionRecord,
        claim: Claim,
        left: Incarnation,
        features: Features = frozenset(),
        *,
        is_interrupted: bool,
    ) -> Resumed:
        """Opens a lane for a parked session, with the newest snapshot that can be read, and says what it holds.

        Args:
            left: the incarnation that it had its lane on until now, which is tried last.
            features: that the operation needs of its worker.
            is_interrupted: the operation is in the middle of something, and comes before all new ones.

        Raises:
            WorkerLost: what a worker would have to know of its history is nowhere.
            NoWorker: none has its fingerprint, or, where another will do, its model; or none the features.
            NoCapacity: none has had a free lane for so long.
            QueueFull, QueueTimedOut: it has not become the first in the queue.
            Draining, Taken, StoreUnavailable
        """
        wanted = Wanted(
            Caller(record.tenant, record.key_id),
            record.model,
            (record.pool,),
            source=record,
            earlier=record.journal_length,
            features=features,
            is_interrupted=is_interrupted,
            is_patient=True,
        )
        returning = _Returning(self, record, claim)
        found = await self._search.lane(returning, wanted, record.reserved_bytes, left=left)
        return cast(Resumed, found)  # nobody else answers the request of a session that is there

    async def reserve(self, record: SessionRecord, claim: Claim, worker: WorkerRecord, waiter_id: str) -> SessionRecord:
        """Reserves a lane there; raises Refused, Taken or StoreUnavailable."""
        answer = await self._store.resume(record, claim, worker, waiter_id)
        match answer.outcome:
            case ResumeSession.RESUMED:
                return answer.record
            case ResumeSession.GONE:
                raise Taken
            case ResumeSession.FULL | ResumeSession.AWAY | ResumeSession.WAIT:
                raise Refused(
                    candidates.no_capacity(),
                    is_overtaken=answer.outcome is ResumeSession.WAIT,
                    is_away=answer.outcome is ResumeSession.AWAY,
                )
            case never:
                assert_never(never)

    async def restored(self, record: SessionRecord, worker: WorkerRecord) -> Resumed:
        """Opens the lane with what is left of the history.

        Raises:
            SnapshotStoreUnavailable: what is left may be in snapshots that this worker cannot read.
            WorkerLost, Taken, WorkerError, KakeyaError
        """
        found = await self._journals.past(record, record.journal_length)
        if found is None:
            raise Taken
        now, journaled, digest = found
        history = Past(now, record.journal_length, journaled, digest)
        what = await restored(self._workers, record, history, worker.snapshot_store)
        if what.opened is None:
            if what.is_unread:
                raise SnapshotStoreUnavailable("the worker cannot read the session's snapshots now")
            raise refusals.history_lost() if what.is_damaged else refusals.lost()
        return await self._without(record, what.unusable), what.opened.lane

    async def _without(self, record: SessionRecord, unusable: Collection[StoredSnapshot]) -> SessionRecord:
        """Has a session that was restored from older ones forget snapshots: what followed them could be read as little,
        and the journal is not to be trimmed for their sake.
        """
        if not unusable:
            return record
        own, inherited = stored_snapshots.parse(record.snapshots), stored_snapshots.parse(record.inherited)
        await self._snapshots.set_snapshots(
            record,
            tuple(each for each in own if each not in unusable),
            0,
            record.snapshot_store,
            record.num_rewinds,
            tuple(each for each in inherited if each not in unusable),
        )
        return await self._store.get(record.session_id) or record


@dataclass(eq=False, slots=True)
class _Returning:
    """One parked session as a seeker of a lane."""

    _resuming: Resuming
    _record: SessionRecord
    _claim: Claim

    def none_able(self, wanted: Wanted, workers: Sequence[WorkerRecord]) -> KakeyaError:
        """Raises WorkerLost: its history is nowhere. Raises NoWorker: what has not begun needs a feature."""
        record, readers = self._record, ""
        if lacking := candidates.without_features(workers, wanted):
            if wanted.is_interrupted:
                return lacking  # a worker that has it may come
            raise lacking
        if any(worker.fingerprint == record.fingerprint for worker in workers):
            if not past.is_reachable(record, record.journal_length):
                raise refusals.lost()
            readers = ", and reads its snapshots"  # such a one may come back
        alternative = ", or the same model under another" if record.inexact_resume else ""
        return candidates.no_worker("the model with the session's fingerprint" + alternative + readers)

    async def open_lane(
        self, wanted: Wanted, worker: WorkerRecord, waiter_id: str, when_reserved: Callable[[], Awaitable[None]]
    ) -> Resumed:
        record = self._record
        reserved = await self._resuming.reserve(record, self._claim, worker, waiter_id)
        await when_reserved()
        try:
            return await self._resuming.restored(reserved, worker)
        except (WorkerError, KakeyaError) as error:
            is_foreign = worker.fingerprint != record.fingerprint
            if isinstance(error, StoreUnavailable) or (isinstance(error, WorkerLost) and not is_foreign):
                raise
            _log.info("a worker does not resume a session", worker_id=worker.worker_id, error=repr(error))
            # Nothing was computed there: it is what it was.
            unharmed = replace(reserved, fingerprint=record.fingerprint, exact=record.exact)
            self._record = await self._resuming.lose_lane(unharmed, self._claim)
            raise Refused(_said(error, is_foreign=is_foreign), has_left=True) from error

    async def renewed(self, wanted: Wanted, *, is_stranded: bool) -> Wanted:
        return replace(wanted, source=self._record)


def _said(error: WorkerError | KakeyaError, *, is_foreign: bool) -> KakeyaError:
    """What its client is told of a worker that does not resume it, if no other does."""
    # A foreign lane may be smaller.
    if isinstance(error, SnapshotStoreUnavailable) or (isinstance(error, InvalidField) and not is_foreign):
        return error
    return candidates.unreachable()
