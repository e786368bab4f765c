"""Operations: who may use a session now, and what is written through when that ends, however it ends."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from kakeya_router.access import callers
from kakeya_router.contract import refusals
from kakeya_router.operations.journal import Journal
from kakeya_router.operations.operation import Operation
from kakeya_router.operations.recovery import Recovery
from kakeya_router.operations.settling import Settling
from kakeya_router.snapshots.snapshotting import Mark, Snapshotting
from kakeya_router.store.outcomes import BeginOperation, RenewOperation
from kakeya_router.store.session_record import LaneState, SessionRecord
from kakeya_router.store.sessions.operation_store import OperationStore
from kakeya_router.store.sessions.session_changes import Intent
from kakeya_router.store.sessions.session_store import Taken
from kakeya_shared.errors.tree import Draining, KakeyaError, StoreUnavailable
from kakeya_shared.process.detached_tasks import DetachedTasks, unheard
from kakeya_shared.rpc import rpc_boundary

_log = structlog.get_logger()


class Operations:
    """Runs operations.

    Args:
        lease_seconds: renewed three times in its length, so that one lost renewal does no harm.
    """

    def __init__(
        self,
        store: OperationStore,
        tasks: DetachedTasks,
        recovery: Recovery,
        settling: Settling,
        snapshotting: Snapshotting,
        *,
        lease_seconds: float,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._renew_seconds = lease_seconds * 0.3
        self._recovery = recovery
        self._snapshotting = snapshotting
        self._settling = settling
        self._running: set[Operation] = set()

    def see_workers(self, incarnations: frozenset[str]) -> None:
        """Ends the calls to workers that are gone, which may hang otherwise; told which are alive."""
        for operation in self._running:
            if operation.record.incarnation and operation.record.incarnation not in incarnations:
                operation.call.lose_worker()

    @asynccontextmanager
    async def running(self, record: SessionRecord, intent: Intent) -> AsyncIterator[Operation]:
        """Holds the session, whose lane has all of its history; on the way out, what the worker has committed is in the
        store and the session free.

        Leave it with `finish`, or by an error: then the worker is told to stop and asked what is committed; only a
        prefill goes on, since its tokens are in the history. An operation that never came to the worker leaves no
        trace.

        Raises:
            SessionNotFound, OperationRunning, InvariantViolated, WorkerLost: the session cannot be had.
            QuotaExceeded: the caller's tenant has used up its tokens for now.
            SessionClosed, WorkerLost, OperationStopped, InvariantViolated: it was taken away in the middle.
            StoreUnavailable: the rest is done once Redis is back.
        """
        tokens_per_minute = callers.current().quota.tokens_per_minute if intent.is_charged else 0
        operation = Operation(record, intent, tokens_per_minute)
        await self._begin(operation, intent)
        renewal = self._tasks.start(self._renew(operation))
        self._running.add(operation)
        try:
            await self._recovery.make_ready(operation)
            yield operation
        except BaseException as error:
            if _can_go_on(error):
                operation.can_be_gone_on_with()
            if _client_is_gone(error):
                self._tasks.start(self._end(operation, renewal, error))
                raise
            instead = await self._end(operation, renewal, error)
            if instead is None:
                raise
            raise instead from error
        else:
            await self._end(operation, renewal, None)

    async def mend(self, record: SessionRecord, intent: Intent) -> None:
        """Sees to a session whose lane a worker says is not as on record; raises as `running`."""
        async with self.running(record, intent) as operation:
            await self._recovery.confirm(operation)

    async def _end(
        self, operation: Operation, renewal: "asyncio.Task[None]", error: BaseException | None
    ) -> KakeyaError | None:
        """Settles, and then lets go of the operation, also where nobody waits for that any more."""
        try:
            return await self._settling.leave(operation, error)
        finally:
            self._running.discard(operation)
            renewal.cancel()

    async def finish(self, operation: Operation, lane: LaneState) -> None:
        """Writes through what the worker committed and frees the session; raises as `running`."""
        error = await operation.end(self._tasks, self._settling.write_through(operation, lane, is_answered=True))
        if error is not None:
            raise error

    async def _begin(self, operation: Operation, intent: Intent) -> None:
        taking = self._tasks.start(self._take(operation, intent))
        try:
            await asyncio.shield(taking)
        except (asyncio.CancelledError, StoreUnavailable):
            self._tasks.start(self._undo(operation, taking))
            raise

    async def _take(self, operation: Operation, intent: Intent) -> None:
        while True:
            answer = await self._store.begin_operation(
                operation.record, operation.claim, intent, operation.tokens_per_minute
            )
            outcome, record = answer.outcome, answer.record
            operation.answered(record, self._journal(operation, record), homeless=outcome is BeginOperation.HOMELESS)
            match outcome:
                case BeginOperation.MOVED:
                    continue
                case BeginOperation.BEGUN | BeginOperation.HOMELESS:
                    return
                case BeginOperation.RECOVER:
                    await self._recover(operation)
                    continue
                case BeginOperation.UNKNOWN:
                    error: KakeyaError = refusals.unknown_operation(record)
                case BeginOperation.QUOTA:
                    error = refusals.quota_exceeded(answer.quota, record.tenant, record.key_id)
                case refused:
                    error = refusals.refusal(refused, record)
            operation.is_over()
            raise error

    def _journal(self, operation: Operation, record: SessionRecord) -> Journal:
        mark = Mark()

        def written(length: int) -> None:
            self._snapshotting.consider(operation.record, length, is_turn=False, mark=mark)

        return Journal(self._store, record, operation.claim, self._snapshotting.journal_tokens, written)

    async def _recover(self, operation: Operation) -> None:
        """Ends the operation of a router that vanished with what its worker has committed."""
        _log.info("operation taken over", session_id=operation.record.session_id, op_id=operation.op_id)
        operation.takes_over()
        error = await self._settling.settle(operation, None)
        if error is not None:
            raise error
        operation.took_over()

    async def _undo(self, operation: Operation, taking: asyncio.Task[None]) -> None:
        unheard(taking)
        await asyncio.wait([taking])
        await self._settling.settle_persistently(operation, None)

    async def _renew(self, operation: Operation) -> None:
        progress_kept_at = time.monotonic()
        while True:
            await asyncio.sleep(self._renew_seconds)
            try:
                # A connection may hang while Redis is well: the next renewal, over another one, is still in time.
                async with asyncio.timeout(self._renew_seconds):
                    outcome = await self._store.renew_operation(operation.record, operation.claim)
            except (StoreUnavailable, TimeoutError):
                continue  # while Redis is away nobody can take the session over
            if outcome is RenewOperation.GONE:
                operation.call.cancel()
                return
            # The next renewal would be too late.
            if time.monotonic() - progress_kept_at + self._renew_seconds > self._snapshotting.recovery_seconds:
                progress_kept_at = time.monotonic()
                self._keep_progress(operation)

    def _keep_progress(self, operation: Operation) -> None:
        """What a long prefill has done so far is not lost with its worker: all of its tokens are in the journal."""
        if operation.at_worker and not operation.homeless:
            self._snapshotting.consider(operation.record, operation.journal.length, is_turn=False)


def _can_go_on(error: BaseException | None) -> bool:
    """Whether the client of a Generate that ended so may go on with it, here or at another router."""
    return isinstance(error, StoreUnavailable | Taken) or isinstance(rpc_boundary.why_cancelled(error), Draining)


def _client_is_gone(error: BaseException) -> bool:
    """Whether this call itself was cancelled, as opposed to the worker's call."""
    if isinstance(error, GeneratorExit):
        return True
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
