"""Opening a session on one worker, so that nothing is left over when that fails."""

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import structlog

from kakeya_router.contract import refusals
from kakeya_router.contract.lanes import Opened
from kakeya_router.lanes import candidates
from kakeya_router.lanes.closing import LANE_LEASE_SECONDS, LANE_SECONDS, Closing
from kakeya_router.lanes.search import Refused
from kakeya_router.lanes.wanted import Wanted
from kakeya_router.sessions.keeping import Keeping
from kakeya_router.sessions.past_lanes import PastLanes
from kakeya_router.sessions.sources import Sources
from kakeya_router.snapshots.past import Past
from kakeya_router.store.connection import is_done
from kakeya_router.store.outcomes import ReserveSession
from kakeya_router.store.persistence import persist
from kakeya_router.store.session_record import Claim, SessionRecord, State
from kakeya_router.store.sessions.creation_store import CreationStore
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
    OperationRunning,
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


@dataclass(eq=False)
class Attempt:
    """One try to open a session on a worker.

    Attributes:
        wanted: what the session is to be.
        waiter_id, when_reserved: see `Seeker.open_lane`.
        record: of the session, on that worker.
        running: the prefill of what it is to begin with; ended when the client leaves.
        outcome: of reserving its lane; see reserve_session.lua. None: not known, so that it may be.
    """

    wanted: Wanted
    worker: WorkerRecord
    waiter_id: str
    when_reserved: Callable[[], Awaitable[None]]
    claim: Claim = field(default_factory=lambda: Claim(secrets.token_hex(8)), init=False)
    running: RunningCall = field(default_factory=RunningCall, init=False)
    outcome: ReserveSession | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.record = self.wanted.record(self.worker)

    @property
    def reserved(self) -> bool:
        """The lane is, or was, reserved: a waiter is then out of this pool's queue."""
        return self.outcome is ReserveSession.RESERVED


@dataclass(eq=False, slots=True)
class Opening:
    """Opens new sessions and forks; the seeker of their lanes, one for all.

    An attempt reserves a lane in Redis, has the worker open it, and marks the session open. It runs as a task of its
    own: where it fails, or its client leaves, what was reserved is closed again. Called by `Search`, for `Sessions`.
    """

    _store: CreationStore
    _past_lanes: PastLanes
    _workers: WorkerClients
    _tasks: DetachedTasks
    _closing: Closing
    _sources: Sources
    _keeping: Keeping

    def none_able(self, wanted: Wanted, workers: Sequence[WorkerRecord]) -> KakeyaError:
        return candidates.without_features(workers, wanted) or candidates.no_worker("the model any more")

    async def renewed(self, wanted: Wanted, *, is_stranded: bool) -> Wanted:
        """Where its source is on another worker by now, it waits for that one."""
        try:
            return await self._sources.renewed(wanted)
        except OperationRunning:
            # Else it is the first, and others would wait with it; here maybe another fork has the source resumed.
            if not is_stranded:
                raise
            return wanted

    async def open_lane(
        self, wanted: Wanted, worker: WorkerRecord, waiter_id: str, when_reserved: Callable[[], Awaitable[None]]
    ) -> SessionRecord | None:
        """Opens a session; a client that leaves in the middle, or a refusal, leaves nothing.

        Returns:
            The record of the open session; None when the request id was answered before.

        Raises:
            Refused: this worker does not take it, or not now.
            SessionNotFound, OperationRunning, BoundaryNotReachable: its source is not what it was.
            QuotaExceeded, StoreUnavailable
        """
        attempt = Attempt(wanted, worker, waiter_id, when_reserved)
        opening = self._tasks.start(self._reserve_and_open(attempt))
        try:
            return await asyncio.shield(opening)
        except (InvalidField, NoCapacity, NoWorker) as error:
            await self._tasks.complete(self._abandon(attempt, opening))
            raise Refused(
                error,
                has_left=attempt.reserved,
                is_overtaken=attempt.outcome is ReserveSession.WAIT,
                is_away=attempt.outcome is ReserveSession.GONE,
            ) from error
        except BaseException:
            self._tasks.start(self._abandon(attempt, opening))
            raise

    async def _reserve_and_open(self, attempt: Attempt) -> SessionRecord | None:
        source = attempt.wanted.source
        begin = await self._reserve(attempt)
        if not attempt.reserved:
            return None
        await attempt.when_reserved()
        record = attempt.record
        if await self._made_elsewhere(attempt):
            await persist(lambda: self._closing.close(record, Cause.ABANDON))
            await asyncio.sleep(random.uniform(0, _GIVE_WAY_SECONDS))
            return None
        answer = await (self._open_lane(record, source) if begin is None else self._open_past_lane(attempt, begin))
        copied = source if begin is None else None
        opened = await self._store.mark_open(record, attempt.claim, answer.sink, answer.window, answer.lane, copied)
        if not is_done(opened.outcome):
            raise await self._changed(source)
        self._keeping.trim(opened.record)
        return opened.record

    async def _open_lane(self, record: SessionRecord, source: SessionRecord | None) -> Opened:
        try:
            answer = await self._workers.at(record.address).open_session(record, source, LANE_SECONDS)
        except (WorkerError, DeadlineExceeded, Unavailable, Internal, HistoryLengthMismatch) as error:
            _log.info("worker does not open sessions", worker_id=record.worker_id, error=repr(error))
            if source is None or not isinstance(error, LaneGone | HistoryLengthMismatch):
                raise candidates.unreachable() from error
            await self._sources.mend(source)
            raise await self._changed(source) from error
        if source is not None and answer.lane.history_length != source.history_length:
            raise candidates.cannot_fork()
        return answer

    async def _open_past_lane(self, attempt: Attempt, begin: Past) -> Opened:
        record, renewal = attempt.record, self._tasks.start(self._renew(attempt))
        try:
            return await self._past_lanes.open(record, begin, attempt.worker.snapshot_store, attempt.running)
        except (WorkerError, DeadlineExceeded, Unavailable, Internal, SessionClosed) as error:
            _log.info("worker does not open a fork", worker_id=record.worker_id, error=repr(error))
            raise candidates.unreachable() from error
        except asyncio.CancelledError as error:  # the lane is not its own any more; else nobody hears this
            raise candidates.unreachable() from error
        finally:
            renewal.cancel()

    async def _changed(self, source: SessionRecord | None) -> KakeyaError:
        """Something has become of the source, or, without one, of the session that was being opened."""
        if source is None:
            return candidates.unreachable()
        record = await self._store.get(source.session_id)
        is_there = record is not None and record.state in (State.OPEN, State.PARKED)
        return candidates.source_changed() if is_there else refusals.not_found()

    async def _renew(self, attempt: Attempt) -> None:
        """A prefill may take longer than opening a lane."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                outcome = await self._store.renew_opening(attempt.record, attempt.claim)
            except StoreUnavailable:
                continue
            if not is_done(outcome):
                attempt.running.cancel()
                return

    async def _reserve(self, attempt: Attempt) -> Past | None:
        """Reserves the lane, unless the request id was answered before.

        Returns:
            What a fork at an earlier length begins with, of which its record then has all.
        """
        wanted, record = attempt.wanted, attempt.record
        source, begin = wanted.source, None
        while True:
            if source is not None and wanted.earlier is not None:
                begin = await self._past_lanes.read(source, wanted.earlier)
            start_length = begin.start_length(attempt.worker.snapshot_store) if begin else 0
            is_charged = begin is not None and start_length < begin.length
            attempt.outcome = None
            answer = await self._store.reserve(
                record,
                attempt.claim,
                wanted.limits,
                attempt.waiter_id,
                source=source,
                length=begin.length if begin else source.history_length if source else 0,
                needed=begin.needed if begin else "",
                start_length=start_length,
                tokens_per_minute=wanted.caller.quota.tokens_per_minute if is_charged else 0,
            )
            attempt.outcome = answer.outcome
            match answer.outcome:
                case ReserveSession.RESERVED | ReserveSession.DUPLICATE:
                    return begin
                case ReserveSession.CHANGED:
                    if begin is None:
                        raise await self._changed(source)
                case ReserveSession.QUOTA:
                    raise refusals.quota_exceeded(answer.quota, record.tenant, record.key_id)
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
