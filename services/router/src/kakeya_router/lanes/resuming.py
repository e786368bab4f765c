"""Resumes sessions: one whose lane is gone gets another one, in the middle of an operation on it."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import assert_never, cast

import structlog

from kakeya_router.access.callers import Caller
from kakeya_router.contract import refusals
from kakeya_router.contract.creates import CreateRequest
from kakeya_router.lanes import candidates
from kakeya_router.lanes.restoring import restored
from kakeya_router.lanes.search import Refused, Search
from kakeya_router.lanes.wanted import Wanted
from kakeya_router.snapshots import past, snapshot_plan
from kakeya_router.snapshots.past import Past
from kakeya_router.store.outcomes import SeatSession, UnseatSession
from kakeya_router.store.session_record import LaneState, SessionRecord
from kakeya_router.store.sessions import stored_snapshots
from kakeya_router.store.sessions.journal_store import JournalStore
from kakeya_router.store.sessions.lane_store import LaneStore
from kakeya_router.store.sessions.session_changes import UNLIMITED
from kakeya_router.store.sessions.session_store import Taken
from kakeya_router.store.sessions.snapshot_lists import SnapshotLists
from kakeya_router.store.sessions.stored_snapshots import StoredSnapshot
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_router.workers.worker_errors import WorkerError
from kakeya_shared.errors.tree import InvalidField, KakeyaError, StoreUnavailable, WorkerLost

_log = structlog.get_logger()

Seated = tuple[SessionRecord, LaneState]


class Resuming:
    """Takes sessions off lanes that are gone, and finds them others; called by `Recovery`, for an operation."""

    def __init__(
        self,
        store: LaneStore,
        journals: JournalStore,
        snapshots: SnapshotLists,
        workers: WorkerClients,
        search: Search,
    ) -> None:
        self._store = store
        self._journals = journals
        self._snapshots = snapshots
        self._workers = workers
        self._search = search

    async def unseat(self, record: SessionRecord, claim: str) -> SessionRecord:
        """Parks a session whose lane is gone; raises WorkerLost, Taken or StoreUnavailable."""
        answer = await self._store.unseat(record, claim)
        if answer.outcome is UnseatSession.PARKED:
            return answer.record
        raise refusals.lost() if answer.outcome is UnseatSession.LOST else Taken

    async def seat(self, record: SessionRecord, claim: str, left: str = "", *, is_interrupted: bool) -> Seated:
        """Opens a lane for a parked session, with the newest snapshot that can be had, and says what it holds.

        Args:
            left: the incarnation that it had its lane on until now, which is tried last.
            is_interrupted: the operation is in the middle of something, and comes before all new ones.

        Raises:
            WorkerLost: what a worker would have to know of its history is nowhere.
            NoWorker: none has its fingerprint, or, where another will do, its model.
            NoCapacity: none has had a free lane for so long.
            QueueFull, QueueTimedOut: it has not been its turn.
            Draining, Taken, StoreUnavailable
        """
        seeker = _Returning(self, record, claim, is_interrupted=is_interrupted)
        found = await self._search.lane(seeker, _wanted(record), record.reserved_bytes, left=left)
        return cast(Seated, found)  # nobody else answers the request of a session that is there

    async def take(self, record: SessionRecord, claim: str, worker: WorkerRecord, waiter_id: str) -> SessionRecord:
        """Reserves a lane there; raises Refused, Taken or StoreUnavailable."""
        answer = await self._store.seat(record, claim, worker, waiter_id)
        match answer.outcome:
            case SeatSession.SEATED:
                return answer.record
            case SeatSession.GONE:
                raise Taken
            case SeatSession.FULL | SeatSession.AWAY | SeatSession.WAIT:
                raise Refused(
                    candidates.no_capacity(),
                    is_overtaken=answer.outcome is SeatSession.WAIT,
                    is_away=answer.outcome is SeatSession.AWAY,
                )
            case never:
                assert_never(never)

    async def restored(self, record: SessionRecord, worker: WorkerRecord) -> Seated:
        """Opens the lane with what is left of the history; raises WorkerLost, Taken, WorkerError or KakeyaError."""
        found = await self._journals.past(record, record.journal_length)
        if found is None:
            raise Taken
        now, journaled, digest = found
        history = Past(now, record.journal_length, journaled, digest)
        what = await restored(self._workers, record, history, worker.snapshot_store)
        if what.opened is None:
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


class _Returning:
    """One parked session as a seeker of a lane."""

    is_patient = True

    def __init__(self, resuming: Resuming, record: SessionRecord, claim: str, *, is_interrupted: bool) -> None:
        self.is_interrupted = is_interrupted
        self._resuming = resuming
        self._record = record
        self._claim = claim
        self._is_served = False

    def able(self, wanted: Wanted, workers: Sequence[WorkerRecord]) -> Sequence[WorkerRecord]:
        """Raises WorkerLost: its history is nowhere."""
        record = self._record
        serving = [worker for worker in workers if worker.can_hold(record)]
        able = [worker for worker in serving if _can_have(record, worker)]
        self._is_served = any(worker.fingerprint == record.fingerprint for worker in serving)
        if self._is_served and not able and not past.is_reachable(record, record.journal_length):
            raise refusals.lost()
        return able

    def is_served(self, wanted: Wanted, workers: Sequence[WorkerRecord]) -> bool:
        return bool(self.able(wanted, workers))

    def none_able(self) -> KakeyaError:
        alternative = ", or the same model under another" if self._record.inexact_resume else ""
        readers = ", and reads its snapshots" if self._is_served else ""  # such a one may come back
        return candidates.no_worker("the model with the session's fingerprint" + alternative + readers)

    async def take(
        self, wanted: Wanted, worker: WorkerRecord, waiter_id: str, when_reserved: Callable[[], Awaitable[None]]
    ) -> Seated:
        record = self._record
        seated = await self._resuming.take(record, self._claim, worker, waiter_id)
        await when_reserved()
        try:
            return await self._resuming.restored(seated, worker)
        except (WorkerError, KakeyaError) as error:
            is_foreign = worker.fingerprint != record.fingerprint
            if isinstance(error, StoreUnavailable) or (isinstance(error, WorkerLost) and not is_foreign):
                raise
            _log.info("a worker does not resume a session", worker_id=worker.worker_id, error=repr(error))
            # Nothing was computed there: it is what it was.
            unharmed = replace(seated, fingerprint=record.fingerprint, exact=record.exact)
            self._record = await self._resuming.unseat(unharmed, self._claim)
            # A foreign lane may be smaller.
            said = error if isinstance(error, InvalidField) and not is_foreign else candidates.unreachable()
            raise Refused(said, has_left=True) from error

    async def renewed(self, wanted: Wanted, *, is_stranded: bool) -> Wanted:
        return wanted


def _can_have(record: SessionRecord, worker: WorkerRecord) -> bool:
    """Whether a worker reads what, together with the journal, makes the session's history."""
    snapshots = snapshot_plan.in_store(record, worker.snapshot_store)
    return bool(snapshot_plan.chains(snapshots, record.journal_start, record.journal_length))


def _wanted(record: SessionRecord) -> Wanted:
    """What it waits for: as a session that begins with all of its history would."""
    return Wanted(
        request=CreateRequest(),
        caller=Caller(record.tenant, record.key_id),
        model=record.model,
        pools=(record.pool,),
        ttl_seconds=0,
        limits=UNLIMITED,
        source=record,
        earlier=record.journal_length,
    )
