"""A session whose lane is gone gets another one, in the middle of an operation on it."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import assert_never

import structlog

from kakeya_router.access.callers import Caller
from kakeya_router.contract import refusals
from kakeya_router.contract.requests import CreateRequest
from kakeya_router.lanes import candidates
from kakeya_router.lanes.admission_queue import TICK_SECONDS, AdmissionQueue
from kakeya_router.lanes.idle_lanes import IdleLanes
from kakeya_router.lanes.waiter import Waiter
from kakeya_router.lanes.wanted import Wanted
from kakeya_router.snapshots import past, snapshot_plan
from kakeya_router.snapshots.past import Past
from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.outcomes import SeatSession, UnseatSession
from kakeya_router.store.records import SessionRecord, WorkerRecord
from kakeya_router.store.sessions import stored_snapshots
from kakeya_router.store.sessions.journal_store import JournalStore
from kakeya_router.store.sessions.lane_state import LaneState
from kakeya_router.store.sessions.lane_store import LaneStore
from kakeya_router.store.sessions.session_changes import UNLIMITED, UNQUEUED
from kakeya_router.store.sessions.session_store import Taken
from kakeya_router.store.sessions.snapshot_lists import SnapshotLists
from kakeya_router.store.sessions.stored_snapshots import Snapshots, StoredSnapshot
from kakeya_router.workers import placement
from kakeya_router.workers.placement import Placement
from kakeya_router.workers.worker_client import WorkerError
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_shared.errors.tree import (
    InvalidField,
    KakeyaError,
    NoCapacity,
    SnapshotRefused,
    SnapshotStoreUnavailable,
    StoreUnavailable,
    WorkerLost,
)

_log = structlog.get_logger()

_PAUSE_SECONDS = 0.1
_LOOK_SECONDS = 1.0
# A snapshot is read and checked before its lane is there.
RESTORE_SECONDS = 60.0


class Resuming:
    """Finds lanes for sessions that had one.

    Args:
        queue: where those wait who find no room; None: they look for it each by itself.
        wait_seconds: how long; None: for ever.
        idle_lanes: makes room for those who do not stand in the line; None: nobody does.
    """

    def __init__(
        self,
        store: LaneStore,
        journals: JournalStore,
        snapshots: SnapshotLists,
        worker_store: WorkerStore,
        workers: WorkerClients,
        placement: Placement,
        queue: AdmissionQueue | None,
        *,
        wait_seconds: float | None,
        idle_lanes: IdleLanes | None = None,
    ) -> None:
        self._store = store
        self._journals = journals
        self._snapshots = snapshots
        self._worker_store = worker_store
        self._workers = workers
        self._placement = placement
        self._queue = queue
        self._wait_seconds = wait_seconds
        self._idle_lanes = idle_lanes

    async def unseat(self, record: SessionRecord, claim: str) -> SessionRecord:
        """Parks a session whose lane is gone; raises WorkerLost, Taken or StoreUnavailable."""
        answer = await self._store.unseat(record, claim)
        if answer.outcome is UnseatSession.PARKED:
            return answer.record
        raise refusals.lost() if answer.outcome is UnseatSession.LOST else Taken

    async def seat(
        self, record: SessionRecord, claim: str, left: str = "", *, is_urgent: bool
    ) -> tuple[SessionRecord, LaneState]:
        """Opens a lane for a parked session, with the newest snapshot that can be had, and says what it holds.

        Args:
            left: the incarnation that it had its lane on until now, which is tried last.
            is_urgent: somebody is in the middle of something with it: it takes what is free when it looks. Else it
                stands in the line like new ones.

        Raises:
            WorkerLost: what a worker would have to know of its history is nowhere.
            NoWorker: none has its fingerprint, or, where another will do, its model.
            NoCapacity: none has had a free lane for so long.
            QueueFull, QueueTimedOut: it has not been its turn.
            Draining, Taken, StoreUnavailable
        """
        loop = asyncio.get_running_loop()
        shunned = {left}
        until = None if self._wait_seconds is None else loop.time() + self._wait_seconds
        look_at = loop.time()  # for room, which takes longer than a try
        while True:
            in_line = None if is_urgent else self._queue
            refusal = await self._try_all(record, claim, shunned, "" if in_line else UNQUEUED)
            if not isinstance(refusal, KakeyaError):
                return refusal
            if isinstance(refusal, NoCapacity):
                if in_line:
                    return await self._stand_in_line(in_line, record, claim, shunned, until)
                if loop.time() >= look_at:
                    look_at = loop.time() + _LOOK_SECONDS
                    if await self._make_room(record, until):
                        continue
            if until is not None and loop.time() >= until:
                raise refusal
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _stand_in_line(
        self, queue: AdmissionQueue, record: SessionRecord, claim: str, shunned: set[str], until: float | None
    ) -> tuple[SessionRecord, LaneState]:
        """Opens a lane when it is the session's turn."""
        waiter = Waiter(_wanted(record), record.reserved_bytes, {})
        async with queue.waiting(waiter, {record.pool}):
            while True:
                try:
                    async with asyncio.timeout_at(until):
                        await waiter.woken()
                        if waiter.displaced:
                            await queue.re_enter(waiter)
                except TimeoutError:
                    raise refusals.queue_timed_out(self._wait_seconds or 0.0) from None
                refusal = await self._try_all(record, claim, shunned, waiter.waiter_id)
                if not isinstance(refusal, KakeyaError):
                    return refusal
                if not isinstance(refusal, NoCapacity):  # a worker has not taken it: not worth another try at once
                    await asyncio.sleep(TICK_SECONDS)
                    await queue.enter(waiter, {record.pool}, returning=True)
                queue.have_room_made(waiter)

    async def _make_room(self, record: SessionRecord, until: float | None) -> bool:
        """As a new session of its tenant would, where the router does that; a snapshot store may hang meanwhile."""
        if self._idle_lanes is None:
            return False
        worker_ids = {worker.worker_id for worker in await self._workers_for(record) if not worker.draining}
        turns = {record.pool: worker_ids}
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                return await self._idle_lanes.make_room(record.tenant, turns, spared=record.session_id)
        return False

    async def _workers_for(self, record: SessionRecord) -> list[WorkerRecord]:
        workers = await self._worker_store.workers(record.pool)
        return [worker for worker in workers if record.may_be_on(worker)]

    async def _try_all(
        self, record: SessionRecord, claim: str, shunned: set[str], waiter_id: str
    ) -> tuple[SessionRecord, LaneState] | KakeyaError:
        """Tries all workers with room; adds those that do not answer to the shunned, which come last.

        Args:
            waiter_id: see `LaneStore.seat`.
        """
        workers = await self._workers_for(record)
        refused: list[KakeyaError] = []
        able = [worker for worker in workers if _chains(record, worker)]
        is_served = any(worker.fingerprint == record.fingerprint for worker in workers)
        if is_served and not able and not past.is_reachable(record, record.journal_length):
            raise refusals.lost()
        order = placement.order_for(record.fingerprint, self._placement, able)
        have_left = bool(order)
        for worker in sorted(order, key=lambda worker: worker.incarnation in shunned):
            answer = await self._store.seat(record, claim, worker, waiter_id)
            have_left = have_left and answer.outcome is SeatSession.AWAY
            match answer.outcome:
                case SeatSession.FULL | SeatSession.AWAY | SeatSession.WAIT:
                    continue
                case SeatSession.GONE:
                    raise Taken
                case SeatSession.SEATED:
                    seated = answer.record
                case never:
                    assert_never(never)
            try:
                return await self._restored(seated, worker)
            except (WorkerError, KakeyaError) as error:
                is_foreign = worker.fingerprint != record.fingerprint
                if isinstance(error, StoreUnavailable) or (isinstance(error, WorkerLost) and not is_foreign):
                    raise
                shunned.add(worker.incarnation)
                _log.info("a worker does not resume a session", worker_id=worker.worker_id, error=repr(error))
                if isinstance(error, InvalidField) and not is_foreign:  # a foreign lane may be smaller
                    refused.append(error)
                else:
                    refused.append(candidates.unreachable())
                # Nothing was computed there: it is what it was.
                unharmed = replace(seated, fingerprint=record.fingerprint, exact=record.exact)
                record = await self.unseat(unharmed, claim)
        if have_left:  # since they were listed: whether there is room, or anybody able at all, is to be seen
            return await self._try_all(record, claim, shunned, waiter_id)
        if not able:
            readers = ", and reads its snapshots" if is_served else ""  # such a one may come back
            return candidates.no_worker("the model with the session's fingerprint" + _alternative(record) + readers)
        return refused[0] if refused else candidates.no_capacity()

    async def _restored(self, record: SessionRecord, worker: WorkerRecord) -> tuple[SessionRecord, LaneState]:
        """Opens the lane with the newest chain of snapshots that is whole and makes the history, with the journal."""
        past, is_damaged, refused = await self._past(record), False, set[StoredSnapshot]()
        for chain in _chains(record, worker):
            try:
                lane = await self._restored_from(record, chain, past)
            except (SnapshotRefused, SnapshotStoreUnavailable) as error:
                _log.warning("a snapshot cannot be used", session_id=record.session_id, error=error.message)
                refused.update(chain)
                continue
            if lane is not None:
                return await self._without(record, refused.difference(chain)), lane
            refused.update(chain)
            is_damaged = True
        raise refusals.history_lost() if is_damaged else refusals.lost()

    async def _restored_from(self, record: SessionRecord, chain: Snapshots, past: Past) -> LaneState | None:
        """A lane with what a chain holds; None: with the journal that does not make the history."""
        client = self._workers.at(record.address)
        answer = await client.restore_session(record, [each.name for each in chain], RESTORE_SECONDS)
        if answer.lane.history_length == (chain[-1].length if chain else 0) and past.continues(answer.lane):
            return answer.lane
        await client.close_session(record, RESTORE_SECONDS)
        _log.error(
            "snapshots and journal do not make the session's history",
            session_id=record.session_id,
            lane_length=answer.lane.history_length,
            journal_start=record.journal_start,
            journal_length=record.journal_length,
        )
        return None

    async def _past(self, record: SessionRecord) -> Past:
        """All that the journal holds; raises Taken or StoreUnavailable."""
        found = await self._journals.past(record, record.journal_length)
        if found is None:
            raise Taken
        now, journaled, digest = found
        return Past(now, record.journal_length, journaled, digest)

    async def _without(self, record: SessionRecord, refused: Collection[StoredSnapshot]) -> SessionRecord:
        """Has a session that was restored from older ones forget snapshots: what followed them could be read as little,
        and the journal is not to be trimmed for their sake.
        """
        if not refused:
            return record
        own, inherited = stored_snapshots.parse(record.snapshots), stored_snapshots.parse(record.inherited)
        await self._snapshots.set_snapshots(
            record,
            tuple(each for each in own if each not in refused),
            0,
            record.snapshot_store,
            record.num_rewinds,
            tuple(each for each in inherited if each not in refused),
        )
        return await self._store.get(record.session_id) or record


def _alternative(record: SessionRecord) -> str:
    return ", or the same model under another" if record.inexact_resume else ""


def _chains(record: SessionRecord, worker: WorkerRecord) -> Sequence[Snapshots]:
    """From which the session can be had together with its journal, the newest first; the last may be none at all."""
    snapshots = snapshot_plan.in_store(record, worker.snapshot_store)
    return snapshot_plan.chains(snapshots, record.journal_start, record.journal_length)


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
