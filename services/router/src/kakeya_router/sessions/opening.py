"""Opening a session on one worker, so that nothing is left over when that fails."""

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable
from typing import assert_never

import structlog

from kakeya_router.contract import refusals
from kakeya_router.contract.lanes import Opened
from kakeya_router.lanes import candidates
from kakeya_router.lanes.closing import LANE_LEASE_SECONDS, LANE_SECONDS, Closing
from kakeya_router.lanes.wanted import Wanted
from kakeya_router.sessions.past_lanes import PastLanes
from kakeya_router.sessions.sources import Sources
from kakeya_router.snapshots.past import Past
from kakeya_router.store.outcomes import MarkOpen, RenewOpening, ReserveSession
from kakeya_router.store.persistence import persist
from kakeya_router.store.session_record import SessionRecord, State
from kakeya_router.store.sessions.creation_store import CreationStore
from kakeya_router.store.sessions.journal_store import JournalStore
from kakeya_router.store.sessions.session_changes import Cause
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.workers.worker_client import RunningCall
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_router.workers.worker_errors import LaneGone, WorkerError
from kakeya_shared.errors.tree import (
    DeadlineExceeded,
    HistoryLengthMismatch,
    Internal,
    InvalidField,
    KakeyaError,
    NoCapacity,
    NoWorker,
    SessionClosed,
    StoreUnavailable,
    Unavailable,
)
from kakeya_shared.process.detached_tasks import DetachedTasks, unheard

_log = structlog.get_logger()

# Some round trips to Redis, in which who draws less is done.
_GIVE_WAY_SECONDS = 0.1
# Two lost renewals do no harm.
RENEW_SECONDS = LANE_LEASE_SECONDS * 0.3


class Attempt:
    """One try to open a session on a worker.

    Attributes:
        wanted: with the session to be.
        record: of it, on a worker.
        waiter_id: of who stands in the line for it; empty: nobody does.
        when_reserved: awaited before the worker is called.
        snapshot_store: of the worker.
        running: the prefill of what it is to begin with; ended when the client leaves.
        outcome: of reserving its lane; see reserve_session.lua. None: not known, so that it may be.
    """

    def __init__(
        self,
        wanted: Wanted,
        worker: WorkerRecord,
        waiter_id: str = "",
        when_reserved: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.wanted = wanted
        self.record = wanted.record(worker)
        self.waiter_id = waiter_id
        self.when_reserved = when_reserved
        self.snapshot_store = worker.snapshot_store
        self.running = RunningCall()
        self.claim = secrets.token_hex(8)
        self.outcome: ReserveSession | None = None

    @property
    def reserved(self) -> bool:
        """The lane is, or was, reserved: a waiter is then out of this pool's line."""
        return self.outcome is ReserveSession.RESERVED

    @property
    def overtaken(self) -> bool:
        """Somebody else has the turn at this worker."""
        return self.outcome is ReserveSession.WAIT


class Opening:
    """Opens sessions."""

    def __init__(
        self,
        store: CreationStore,
        journals: JournalStore,
        workers: WorkerClients,
        tasks: DetachedTasks,
        closing: Closing,
        sources: Sources,
    ) -> None:
        self._sources = sources
        self._past_lanes = PastLanes(journals, workers)
        self._store = store
        self._workers = workers
        self._tasks = tasks
        self._closing = closing

    async def open(self, attempt: Attempt) -> SessionRecord | None:
        """Opens a session; a client that leaves in the middle, or a refusal, leaves nothing.

        Returns:
            The record of the open session; None when the request id was answered before.

        Raises:
            InvalidField, NoCapacity, NoWorker: this worker does not take it, or not now.
            SessionNotFound, OperationRunning, BoundaryNotReachable: its source is not what it was.
            QuotaExceeded, StoreUnavailable
        """
        opening = self._tasks.start(self._reserve_and_open(attempt))
        try:
            return await asyncio.shield(opening)
        except (InvalidField, NoCapacity, NoWorker):
            await self._tasks.complete(self._abandon(attempt, opening))
            raise
        except BaseException:
            self._tasks.start(self._abandon(attempt, opening))
            raise

    async def _reserve_and_open(self, attempt: Attempt) -> SessionRecord | None:
        source = attempt.wanted.source
        begin = await self._reserve_with_past(attempt)
        if not attempt.reserved:
            return None
        if attempt.when_reserved is not None:
            await attempt.when_reserved()
        record = attempt.record
        if await self._made_elsewhere(attempt):
            await persist(lambda: self._closing.close(record, Cause.ABANDON))
            await asyncio.sleep(random.uniform(0, _GIVE_WAY_SECONDS))
            return None
        answer = await (self._open_lane(record, source) if begin is None else self._open_past_lane(attempt, begin))
        lane = answer.lane
        opened = await self._store.mark_open(
            record,
            attempt.claim,
            answer.sink,
            answer.window,
            history_length=lane.history_length,
            kv_live_bytes=lane.kv_live_bytes,
            retained=lane.retained,
            source=source if begin is None else None,
        )
        if opened.outcome is MarkOpen.GONE:
            raise await self._unreachable(source)
        return opened.record

    async def _open_lane(self, record: SessionRecord, source: SessionRecord | None) -> Opened:
        try:
            answer = await self._workers.at(record.address).open_session(record, source, LANE_SECONDS)
        except (WorkerError, DeadlineExceeded, Unavailable, Internal, HistoryLengthMismatch) as error:
            _log.info("worker does not open sessions", worker_id=record.worker_id, error=repr(error))
            if source is None or not isinstance(error, LaneGone | HistoryLengthMismatch):
                raise candidates.unreachable() from error
            await self._sources.mend(source)
            raise await self._unreachable(source) from error
        if source is not None and answer.lane.history_length != source.history_length:
            raise candidates.cannot_fork()
        return answer

    async def _open_past_lane(self, attempt: Attempt, begin: Past) -> Opened:
        record, renewal = attempt.record, self._tasks.start(self._renew(attempt))
        try:
            return await self._past_lanes.open(record, begin, attempt.snapshot_store, attempt.running)
        except (WorkerError, DeadlineExceeded, Unavailable, Internal, SessionClosed) as error:
            _log.info("worker does not open a fork", worker_id=record.worker_id, error=repr(error))
            raise candidates.unreachable() from error
        except asyncio.CancelledError as error:  # the lane is not its own any more; else nobody hears this
            raise candidates.unreachable() from error
        finally:
            renewal.cancel()

    async def _unreachable(self, source: SessionRecord | None) -> KakeyaError:
        """Where the source has only gone on, was parked or moved, the next attempt finds it."""
        record = None if source is None else await self._store.get(source.session_id)
        is_closed = source is not None and (record is None or record.state not in (State.OPEN, State.PARKED))
        return refusals.not_found() if is_closed else candidates.unreachable()

    async def _renew(self, attempt: Attempt) -> None:
        """A prefill may take longer than opening a lane."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                outcome = await self._store.renew_opening(attempt.record, attempt.claim)
            except StoreUnavailable:
                continue
            if outcome is RenewOpening.GONE:
                attempt.running.cancel()
                return

    async def _reserve_with_past(self, attempt: Attempt) -> Past | None:
        """Reserves the lane; returns what a fork at an earlier length begins with, of which its record then has all."""
        source, earlier, begin = attempt.wanted.source, attempt.wanted.earlier, None
        while True:
            if source is not None and earlier is not None:
                begin = await self._past_lanes.read(source, earlier)
            attempt.outcome = None
            if await self._reserve(attempt, begin) is not ReserveSession.CHANGED:
                return begin
            if begin is None:
                raise await self._unreachable(source)

    async def _reserve(self, attempt: Attempt, begin: Past | None) -> ReserveSession:
        """Reserves the lane, unless the request id was answered before, or the source is another one by now."""
        wanted = attempt.wanted
        length = 0 if begin is None else begin.length
        start_length = length if begin is None else begin.start_length(attempt.snapshot_store)
        answer = await self._store.reserve(
            attempt.record,
            attempt.claim,
            wanted.limits,
            attempt.waiter_id,
            source=wanted.source,
            length=begin.length if begin else wanted.source.history_length if wanted.source else 0,
            needed=begin.needed if begin else "",
            start_length=start_length,
            tokens_per_minute=wanted.caller.quota.tokens_per_minute if start_length < length else 0,
        )
        attempt.outcome = answer.outcome
        match answer.outcome:
            case ReserveSession.RESERVED | ReserveSession.DUPLICATE | ReserveSession.CHANGED:
                return answer.outcome
            case ReserveSession.QUOTA:
                raise refusals.quota_exceeded(answer.quota, attempt.record.tenant, attempt.record.key_id)
            case ReserveSession.FULL | ReserveSession.WAIT:
                raise candidates.no_capacity()
            case ReserveSession.GONE:
                raise candidates.unreachable()
            case never:
                assert_never(never)

    async def _made_elsewhere(self, attempt: Attempt) -> bool:
        """Whether an equal request has a session in another pool that serves the model.

        Each sets its pool's request key before it looks at the others', so of several that are made at once at most
        one finds none. Where all give way, they try again at different times.
        """
        wanted, tenant = attempt.wanted, attempt.record.tenant
        if not wanted.request.request_id:
            return False
        for pool in sorted(set(wanted.pools) - {attempt.record.pool}):
            session_id = await self._store.of_request(pool, tenant, wanted.request.request_id)
            other = await self._store.get(session_id) if session_id else None
            if other is not None and other.state in (State.OPENING, State.OPEN, State.PARKED, State.FAILED):
                return True
        return False

    async def _abandon(self, attempt: Attempt, opening: "asyncio.Task[SessionRecord | None]") -> None:
        unheard(opening)
        attempt.running.cancel()
        await asyncio.wait([opening])
        if attempt.outcome is None or attempt.reserved:
            await persist(lambda: self._closing.close(attempt.record, Cause.ABANDON))
