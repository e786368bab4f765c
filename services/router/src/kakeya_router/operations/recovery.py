"""Has the lane of an operation's session hold all of its history, wherever that lane is."""

import asyncio
import time
from dataclasses import dataclass

import structlog

from kakeya_router.contract import refusals
from kakeya_router.contract.lanes import Stopped
from kakeya_router.lanes.moving import Moving
from kakeya_router.lanes.resuming import Resuming
from kakeya_router.metrics import RouterMetrics
from kakeya_router.operations.operation import Operation
from kakeya_router.snapshots.past import Past
from kakeya_router.store.session_record import SessionRecord, State
from kakeya_router.store.sessions.journal_store import JournalStore
from kakeya_router.store.sessions.session_store import Taken
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_router.workers.worker_errors import LaneGone, WorkerError, WorkerUnreachable
from kakeya_shared.contract.history_digest import extended_digest
from kakeya_shared.errors.tree import (
    Draining,
    HistoryFull,
    HistoryLengthMismatch,
    InvariantViolated,
    KakeyaError,
    OperationStopped,
    SessionClosed,
    StoreUnavailable,
)
from kakeya_shared.process.detached_tasks import DetachedTasks, is_cancelled
from kakeya_shared.rpc import rpc_boundary, tracing
from kakeya_shared.settings.service import LONGEST_APPEND_TOKENS

_log = structlog.get_logger()

# A worker that lives answers within a step. While it is asked, a client waits for tokens.
_ASK_SECONDS = 1.0
# Where nothing says that it does not, and to have the session elsewhere costs more.
_CONFIRM_SECONDS = 5.0
# A lane that was made of what the store has does not hold what the store says of it: a third will not either.
_MAX_MISMATCHES = 2


def is_broken(operation: Operation, error: BaseException) -> bool:
    """Whether a call failed since its worker or the session's lane is gone, and not for another reason."""
    if isinstance(error, asyncio.CancelledError):
        return operation.call.worker_lost and not operation.call.cancelled and not is_cancelled()
    if isinstance(error, OperationStopped):  # by a router that had the operation before, and is late
        return error.metadata.get("cause") != "unread"
    # A lane that was closed although its session was not: its worker had to give all of them up. One with another
    # history: the store was set back.
    return isinstance(error, WorkerUnreachable | LaneGone | Draining | SessionClosed | HistoryLengthMismatch)


def can_be_gone_on_with(error: BaseException | None) -> bool:
    """Whether the client of a Generate that ended so may go on with it, here or at another router."""
    return isinstance(error, StoreUnavailable | Taken) or isinstance(rpc_boundary.why_cancelled(error), Draining)


def client_is_gone(error: BaseException) -> bool:
    """Whether this call itself was cancelled, as opposed to the worker's call."""
    return isinstance(error, GeneratorExit) or (isinstance(error, asyncio.CancelledError) and is_cancelled())


@dataclass(frozen=True, slots=True)
class Recovery:
    """Called on the way into an operation, and wherever its call to the worker breaks off.

    What is begun here is completed although the caller is cancelled; see `Operation.complete`.

    Every method raises, beside what it names:
        WorkerLost: the session cannot be resumed.
        NoWorker, NoCapacity: no worker has a lane for it.
        Taken, StoreUnavailable
    """

    _store: JournalStore
    _workers: WorkerClients
    _resuming: Resuming
    _moving: Moving
    _tasks: DetachedTasks
    _metrics: RouterMetrics

    async def begin(self, operation: Operation) -> None:
        """Finds a lane for a session that has none; else has its lane hold what an append did not come to prefill."""
        if operation.is_parked:
            is_interrupted = operation.kind == "fork" or operation.goes_on
            await operation.complete(self._resume(operation, is_interrupted=is_interrupted))
        else:
            await self.recover(operation)

    async def recover(self, operation: Operation, error: BaseException | None = None) -> list[int]:
        """Asks for the session's lane, and finds another one where that does not hold its history.

        Args:
            error: with which the operation's call broke off; None: nothing has broken off yet.

        Returns:
            What its Generate has produced beyond what the client has seen.
        """
        began = time.monotonic()
        if error is not None:
            operation.call.breaks_off()
        with tracing.part("recovery", (operation.call.broken,), left_worker_id=operation.record.worker_id):
            missed = await operation.complete(self._recover(operation, error))
            record = operation.record
            tracing.annotate(worker_id=record.worker_id, epoch=record.epoch, missed=len(missed))
        self._metrics.recovery_seconds.labels(_reason(operation, error)).observe(time.monotonic() - began)
        return missed

    async def leave(self, operation: Operation, parked: SessionRecord) -> None:
        """Gives a session that the store has parked another lane, with all of its history as it is now."""
        self._tasks.start(self._workers.close_lane(operation.record))
        operation.rewound(parked)
        await self._resume(operation, is_interrupted=True)

    async def _recover(self, operation: Operation, error: BaseException | None) -> list[int]:
        await operation.journal.flush()
        # A worker that shuts down still has the lane, and does nothing with it any more but to let others copy it.
        is_leaving = isinstance(error, Draining)
        seconds = _CONFIRM_SECONDS if error is None else _ASK_SECONDS
        # Then it has nothing that this operation has generated.
        has_begun = error is not None and not isinstance(error, HistoryLengthMismatch)
        produced = None if is_leaving else await self._found(operation, seconds, has_begun=has_begun)
        try:
            if produced is not None or (is_leaving and await self._has_moved(operation)):
                await self._catch_up(operation)
                return produced or []
        except BaseException as broken:
            if not is_broken(operation, broken):
                raise
        await self._resume(operation, is_interrupted=True)
        return produced or []

    async def _has_moved(self, operation: Operation) -> bool:
        """Whether the session has a lane elsewhere now, which is a copy: what its lane has nobody may have else."""
        moved = await self._moving.move(operation.record, operation.claim, operation.features)
        if isinstance(moved, SessionRecord):
            operation.lies_at(moved)
        return isinstance(moved, SessionRecord)

    async def _found(self, operation: Operation, seconds: float, *, has_begun: bool) -> list[int] | None:
        """Asks the worker for its lane, and takes over what that holds; None: it is not there, or not to be trusted."""
        record, journal = operation.record, operation.journal
        if operation.call.worker_lost:
            return None
        try:
            # One whose tunnels are away lives as long as its lease, and is waited for.
            wait_seconds = None if record.is_tunnelled else seconds
            stopped = await self._workers.at(record.address).stop(record, journal.length, wait_seconds)
        except InvariantViolated:
            raise
        except (WorkerError, KakeyaError):
            return None
        is_ahead = not has_begun and stopped.lane.history_length > journal.length
        if is_ahead or not await self._is_its_own(operation, stopped):
            _log.warning("a lane does not hold its session's history", session_id=record.session_id)
            return None
        await journal.write(stopped.token_ids)
        operation.committed(stopped.lane)
        return list(stopped.token_ids)

    async def _is_its_own(self, operation: Operation, stopped: Stopped) -> bool:
        """Whether the session's history begins with what the lane holds; not where the store was set back, say."""
        lane, journal = stopped.lane, operation.journal
        if not operation.record.history_length <= lane.history_length <= journal.length + len(stopped.token_ids):
            return False
        if lane.history_length < journal.length:
            return (await self.journaled(operation)).continues(lane)
        digest = operation.record.digest_at(journal.length) if journal.digest is None else journal.digest
        if digest is None or lane.history_digest is None:
            return True
        return extended_digest(digest, stopped.token_ids) == lane.history_digest

    async def journaled(self, operation: Operation) -> Past:
        """All that the session's journal holds."""
        found = await self._store.past(operation.record, operation.journal.length)
        if found is None:
            raise Taken
        record, journaled, digest = found
        return Past(record, operation.journal.length, journaled, digest)

    async def _resume(self, operation: Operation, *, is_interrupted: bool) -> None:
        """Gives the session a lane that it does not have yet, and has that hold its history."""
        operation.calls_worker()
        num_mismatches = 0
        while True:
            try:
                await self._resume_once(operation, is_interrupted=is_interrupted)
                await self._catch_up(operation)
            except BaseException as error:
                if not is_broken(operation, error):
                    raise
                num_mismatches += isinstance(error, HistoryLengthMismatch)
                if num_mismatches >= _MAX_MISMATCHES:
                    raise refusals.history_lost() from error
            else:
                return

    async def _resume_once(self, operation: Operation, *, is_interrupted: bool) -> None:
        began, record, left = time.monotonic(), operation.record, operation.record.incarnation
        reason = "parked" if record.state is State.PARKED else "recovery"
        if record.state is not State.PARKED:
            operation.lies_at(await self._resuming.lose_lane(record, operation.claim))
            self._tasks.start(self._workers.close_lane(record))  # not before: another router may have the session now
        resumed, lane = await self._resuming.resume(
            operation.record, operation.claim, left, operation.features, is_interrupted=is_interrupted
        )
        operation.has_lane(resumed.with_lane(lane))
        self._metrics.resume_seconds.labels(reason).observe(time.monotonic() - began)
        _log.info(
            "session resumed",
            session_id=record.session_id,
            worker_id=resumed.worker_id,
            epoch=resumed.epoch,
            restored_tokens=lane.history_length,
            journaled_tokens=operation.journal.length - lane.history_length,
        )

    async def _catch_up(self, operation: Operation) -> None:
        """Has the worker prefill what the history has and its lane lacks; raises LaneGone: the journal has not all."""
        while (record := operation.record).history_length < operation.journal.length:
            operation.calls_worker()
            end = min(operation.journal.length, record.history_length + LONGEST_APPEND_TOKENS)
            token_ids = await self._store.journal(record, record.history_length, end)
            if len(token_ids) < end - record.history_length:
                raise LaneGone("the journal does not reach back to what the session's lane holds")
            try:
                await operation.prefill(self._workers.at(record.address), token_ids)
            except HistoryFull as error:  # their client was told, or has gone
                fitting = record.history_length + int(error.metadata.get("room", 0))
                await self.retract(operation, min(fitting, _last_append(operation)))

    async def retract(self, operation: Operation, length: int) -> None:
        """Takes back what does not fit a session that refuses to forget."""
        await self._store.retract(operation.record, operation.claim, length)
        operation.retracted(length)


def _reason(operation: Operation, error: BaseException | None) -> str:
    """Of a recovery, as metrics name it."""
    if error is None:
        return "unfinished"
    if isinstance(error, Draining):
        return "drain"
    return "worker" if operation.call.worker_lost or isinstance(error, WorkerUnreachable) else "lane"


def _last_append(operation: Operation) -> int:
    """Where the last append of the history begins, so that it is taken back as a whole; where it ends, if it is another
    operation that is there.
    """
    record, length = operation.record, operation.journal.length
    if operation.append_start is not None:
        return operation.append_start
    return record.append_start if record.append_end == length else length
