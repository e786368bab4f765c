"""Operations: who may use a session now, and what is written through when that ends, however it ends."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import assert_never

import structlog

from kakeya_router.access import callers
from kakeya_router.contract import refusals
from kakeya_router.lanes.closing import Closing
from kakeya_router.metrics import RouterMetrics, no_metrics
from kakeya_router.operations.journal import Journal, JournalGroups
from kakeya_router.operations.needed_features import NeededFeatures
from kakeya_router.operations.operation import Elsewhere, Operation, Running
from kakeya_router.operations.recovery import Recovery, can_be_gone_on_with, client_is_gone
from kakeya_router.operations.renewals import RENEWED_EACH, Renewals
from kakeya_router.operations.settling import Settling
from kakeya_router.snapshots.snapshotting import Mark, Snapshotting
from kakeya_router.store.outcomes import BeginOperation, EndOperation
from kakeya_router.store.persistence import persist
from kakeya_router.store.session_record import LaneState, SessionRecord, State
from kakeya_router.store.sessions.operation_store import OperationStore
from kakeya_router.store.sessions.session_changes import Closes, Intent
from kakeya_router.store.sessions.session_store import Taken
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_router.workers.worker_errors import WorkerError
from kakeya_shared.contract.features import GRAMMAR
from kakeya_shared.errors.tree import InvariantViolated, KakeyaError, StoreUnavailable
from kakeya_shared.process.detached_tasks import DetachedTasks, unheard

_log = structlog.get_logger()

# A worker ends an operation within a step, which on a small and busy host can take seconds. Waiting costs less
# than giving a session up that is well.
_STOP_SECONDS = 10.0


@dataclass(eq=False, slots=True)
class Operations:
    """Holds sessions for operations: a record in Redis with a lease says whose a session is now.

    Attributes:
        lease_seconds: renewed three times in its length.
        running_now: those that hold a session, those that wait for its lane included.
    """

    _store: OperationStore
    _workers: WorkerClients
    _needed: NeededFeatures
    _tasks: DetachedTasks
    _recovery: Recovery
    _snapshotting: Snapshotting
    _settling: Settling
    _closing: Closing
    _: KW_ONLY
    lease_seconds: float
    metrics: RouterMetrics = field(default_factory=no_metrics)
    running_now: Running = field(default_factory=Running, init=False)
    _groups: JournalGroups = field(init=False)

    def __post_init__(self) -> None:
        self._groups = JournalGroups(self._store, self._tasks, self.metrics)

    @asynccontextmanager
    async def running(self, record: SessionRecord, intent: Intent) -> AsyncIterator[Operation]:
        """Holds the session, whose lane has all of its history; on the way out, what the worker has committed is in the
        store and the session free.

        Leave it with `finish`, or by an error: then the worker is told to stop and asked what is committed; only a
        prefill goes on, since its tokens are in the history. An operation that never came to the worker leaves no
        trace.

        Raises:
            SessionNotFound, OperationRunning, InvariantViolated, WorkerLost: the session cannot be resumed.
            NoWorker: that which holds it lacks a feature that the operation needs; nothing has changed.
            QuotaExceeded: the caller's tenant has used up its tokens for now.
            Elsewhere
            SessionClosed, WorkerLost, OperationStopped, InvariantViolated: it was taken away in the middle.
            StoreUnavailable: the rest is done once Redis is back.
        """
        tokens_per_minute = callers.current().quota.tokens_per_minute if intent.is_charged else 0
        operation = Operation(record, intent, self._tasks, tokens_per_minute=tokens_per_minute)
        begun = self._tasks.start(self._begin(operation, intent))
        try:
            await asyncio.shield(begun)
        except (asyncio.CancelledError, StoreUnavailable):
            self._tasks.start(self._undo(operation, begun))
            raise
        self.running_now.add(operation)
        try:
            if operation.features and not operation.is_parked:
                await self._needed.check(operation)
            if operation.is_parked or operation.record.history_length < operation.journal.length:
                await self._recovery.begin(operation)
            if GRAMMAR in operation.features:
                await self._needed.pin(operation)
            yield operation
        except BaseException as error:
            if can_be_gone_on_with(error):
                operation.can_be_gone_on_with()
            if client_is_gone(error):
                self._tasks.start(self._leave(operation, error))
                raise
            instead = await self._leave(operation, error)
            if instead is None or instead is error:
                raise
            raise instead from error
        else:
            await self._leave(operation, None)

    async def mend(self, record: SessionRecord, intent: Intent) -> None:
        """Sees to a session whose lane a worker says is not as on record; raises as `running`."""
        async with self.running(record, intent) as operation:
            await self._recovery.recover(operation)

    async def finish(self, operation: Operation, lane: LaneState) -> None:
        """Writes through what the worker committed and frees the session; raises as `running`."""
        error = await operation.end(self._write_through(operation, lane, is_answered=True))
        if error is not None:
            raise error

    def renewals(self) -> Renewals:
        """Those of all that run, while their `run` does."""
        return Renewals(self._store, self.running_now, self._keep_progress, lease_seconds=self.lease_seconds)

    # How it begins, and is kept.

    async def _begin(self, operation: Operation, intent: Intent) -> None:
        while True:
            answer = await self._store.begin_operation(
                operation.record, operation.claim, intent, operation.tokens_per_minute
            )
            outcome, record = answer.outcome, answer.record
            journal = Journal(
                self._store,
                self._groups,
                record,
                operation.claim,
                self._snapshotting.journal_tokens,
                self._on_written(operation),
            )
            operation.answered(record, journal, is_parked=outcome is BeginOperation.PARKED)
            match outcome:
                case BeginOperation.MOVED:
                    continue
                case BeginOperation.BEGUN | BeginOperation.PARKED:
                    if operation.kind == "generate" and record.operation_features:
                        operation.pins(record.pinned_features)
                    return
                case BeginOperation.RECOVER:
                    await self._take_over(operation)
                    continue
                case BeginOperation.APART:
                    operation.is_over()
                    raise Elsewhere(record)
                case BeginOperation.UNKNOWN:
                    error: KakeyaError = refusals.unknown_operation(record)
                case BeginOperation.QUOTA:
                    error = refusals.quota_exceeded(answer.quota, record.tenant, record.key_id)
                case refused:
                    error = refusals.refusal(refused, record)
            operation.is_over()
            raise error

    def _on_written(self, operation: Operation) -> Callable[[int], None]:
        mark = Mark()
        return lambda length: self._snapshotting.consider(operation.record, length, is_turn=False, mark=mark)

    async def _take_over(self, operation: Operation) -> None:
        """Ends the operation of a router that vanished with what its worker has committed."""
        _log.info("operation taken over", session_id=operation.record.session_id, op_id=operation.op_id)
        self.metrics.taken_over_operations.inc()
        operation.takes_over()
        error = await self._settle(operation, None)
        if error is not None:
            raise error
        operation.took_over()

    async def _undo(self, operation: Operation, begun: asyncio.Task[None]) -> None:
        unheard(begun)
        await asyncio.wait([begun])
        await persist(lambda: self._settle(operation, None))

    def _keep_progress(self, operation: Operation) -> None:
        """Told of each whose lease is renewed: what a long prefill has done so far is not lost with its worker, since
        all of its tokens are in the journal.
        """
        # At the next renewal it would be too late.
        recovery_seconds = self._snapshotting.recovery_seconds - RENEWED_EACH * self.lease_seconds
        if operation.keeps_progress(recovery_seconds) and operation.at_worker and not operation.is_parked:
            self._snapshotting.consider(operation.record, operation.journal.length, is_turn=False)

    # How it ends.

    async def _leave(self, operation: Operation, error: BaseException | None) -> KakeyaError | None:
        """Settles what is left of it, and lets go of it; where Redis does not answer, the first is done later, and the
        client does not wait. Returns what has become of the session if it is not well.
        """
        unavailable = error if isinstance(error, StoreUnavailable) else None
        try:
            if operation.over:
                return None
            if unavailable is None:
                return await self._tasks.complete(self._settle(operation, error))
        except StoreUnavailable as silent:
            unavailable = silent
        finally:
            self.running_now.discard(operation)
        self._tasks.start(persist(lambda: self._settle(operation, error)))
        return unavailable

    async def _settle(self, operation: Operation, error: BaseException | None) -> KakeyaError | None:
        """Ends what is left of an operation; returns what has become of the session if it is not well."""
        if await operation.ended():
            return None
        if operation.kind == "rewind" and operation.at_worker:
            await self._look_again(operation)
        record = operation.record
        if operation.call.cancelled or isinstance(error, Taken):
            return await self._settling.overtaken(operation)
        if not operation.at_worker:
            await self._store.release_operation(record, operation.claim)
            return None
        if isinstance(error, InvariantViolated):
            return await self._settling.fail(operation, error)
        if isinstance(error, refusals.HistoryLost):
            return await self._settling.lose(operation, for_good=True)
        if record.state is State.PARKED:
            return await self._settling.lose(operation)
        try:
            stopped = await self._workers.at(record.address).stop(record, operation.journal.length, _STOP_SECONDS)
        except InvariantViolated as violated:
            return await self._settling.fail(operation, violated)
        except (WorkerError, KakeyaError) as stop_error:
            # Without the truth about its lane the session cannot go on.
            _log.warning("worker does not stop", session_id=record.session_id, error=repr(stop_error))
            return await self._settling.lose(operation)
        return await self._write_through(operation, stopped.lane, stopped.token_ids)

    async def _look_again(self, operation: Operation) -> None:
        """A rewind may have taken place without an answer."""
        record = await self._store.get(operation.record.session_id)
        if record is not None:
            operation.looked_at(record)

    async def _write_through(
        self, operation: Operation, lane: LaneState, generated: Sequence[int] = (), *, is_answered: bool = False
    ) -> KakeyaError | None:
        """Returns what has become of the session if it is not well.

        Args:
            generated: what the worker says that it generated and the journal lacks.
            is_answered: the client is about to be told that all of it is in the history.
        """
        journal = operation.journal
        # Of equal tokens, those that the client has seen and those that the worker has committed: all of both.
        token_ids = max(tuple(journal.pending), tuple(generated), key=len)
        closes = Closes.ANY if operation.closes else Closes(operation.is_answering)
        answer = await self._store.end_operation(
            operation.record, operation.claim, lane, journal.length, token_ids, closes=closes, turn=operation.turn
        )
        match answer.outcome:
            case EndOperation.ENDED:
                self._snapshotting.consider(
                    operation.record, journal.length + len(token_ids), is_turn=operation.kind in ("generate", "rewind")
                )
            case EndOperation.CLOSING:
                finishing = self._closing.finish(answer.record, operation.claim, lane_freed=operation.lane_freed)
                operation.close(finishing)
            case EndOperation.GONE:
                return await self._settling.overtaken(operation)
            case EndOperation.REGRESSED:
                return await self._settling.fail(operation, refusals.failed("inv2"))
            case EndOperation.UNKNOWN | EndOperation.UNLIKE:
                _log.error("a lane does not hold its session's history", session_id=operation.record.session_id)
                return await self._settling.lose(operation) or (refusals.unconfirmed() if is_answered else None)
            case never:
                assert_never(never)
        operation.is_over()
        return None
