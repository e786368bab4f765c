"""How an operation ends: what its worker has committed is written through, and the session is free, however it ends."""

from collections.abc import Sequence
from typing import assert_never

import structlog

from kakeya_router.contract import refusals
from kakeya_router.contract.refusals import HistoryLost
from kakeya_router.lanes.closing import Closing
from kakeya_router.operations.operation import Operation
from kakeya_router.snapshots.snapshotting import Snapshotting
from kakeya_router.store.outcomes import EndOperation, FailSession, LoseSession
from kakeya_router.store.persistence import persist
from kakeya_router.store.session_record import LaneState, State
from kakeya_router.store.sessions.operation_store import OperationStore
from kakeya_router.store.sessions.session_changes import Cause, LaneAtRest, TimesToLive
from kakeya_router.store.sessions.session_store import Taken
from kakeya_router.workers.worker_client import WorkerError
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_shared.errors.tree import InvariantViolated, KakeyaError, StoreUnavailable
from kakeya_shared.process.detached_tasks import DetachedTasks

_log = structlog.get_logger()

# A worker ends an operation within a step, which on a small and busy host can take seconds. Waiting costs less
# than giving a session up that is well.
_STOP_SECONDS = 10.0


class Settling:
    """Ends operations; called by `Operations` on their way out, and when it takes over what another router left.

    Args:
        retention: of sessions whose lane is gone.
    """

    def __init__(
        self,
        store: OperationStore,
        workers: WorkerClients,
        tasks: DetachedTasks,
        snapshotting: Snapshotting,
        closing: Closing,
        *,
        retention: TimesToLive,
    ) -> None:
        self._store = store
        self._workers = workers
        self._tasks = tasks
        self._snapshotting = snapshotting
        self._closing = closing
        self._retention = retention

    async def leave(self, operation: Operation, error: BaseException | None) -> KakeyaError | None:
        """Settles; where Redis does not answer, later and not while the client waits."""
        if not isinstance(error, StoreUnavailable):
            try:
                return await self._tasks.complete(self.settle(operation, error))
            except StoreUnavailable as unavailable:
                self._tasks.start(self.settle_persistently(operation, error))
                return unavailable
        self._tasks.start(self.settle_persistently(operation, error))
        return None

    async def settle_persistently(self, operation: Operation, error: BaseException | None) -> None:
        await persist(lambda: self.settle(operation, error))

    async def settle(self, operation: Operation, error: BaseException | None) -> KakeyaError | None:
        """Ends what is left of an operation; returns what has become of the session if it is not well."""
        if await operation.ended():
            return None
        if operation.kind == "rewind" and operation.at_worker:
            await self._look_again(operation)
        record = operation.record
        if operation.call.cancelled or isinstance(error, Taken):
            return await self._overtaken(operation)
        if not operation.at_worker:
            await self._store.release_operation(record, operation.claim)
            return None
        if isinstance(error, InvariantViolated):
            return await self._fail(operation, error.metadata.get("invariant", "inv1"))
        if isinstance(error, HistoryLost):
            return await self._lose(operation, for_good=True)
        if record.state is State.PARKED:
            return await self._lose(operation)
        try:
            stopped = await self._workers.at(record.address).stop(record, operation.journal.length, _STOP_SECONDS)
        except InvariantViolated as violated:
            return await self._fail(operation, violated.metadata.get("invariant", "inv1"))
        except (WorkerError, KakeyaError) as stop_error:
            # Without the truth about its lane the session cannot go on.
            _log.warning("worker does not stop", session_id=record.session_id, error=repr(stop_error))
            return await self._lose(operation)
        return await self.write_through(operation, stopped.lane, stopped.token_ids)

    async def _look_again(self, operation: Operation) -> None:
        """A rewind may have taken place without an answer."""
        record = await self._store.get(operation.record.session_id)
        if record is not None:
            operation.looked_at(record)

    async def write_through(
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
        at_rest = LaneAtRest(
            lane.history_length,
            lane.kv_live_bytes,
            lane.retained,
            journal.length,
            token_ids,
            lane.num_rewinds,
            lane.history_digest,
        )
        answer = await self._store.end_operation(
            operation.record, operation.claim, at_rest, closes=operation.is_answering
        )
        match answer.outcome:
            case EndOperation.ENDED:
                self._snapshotting.consider(
                    operation.record, journal.length + len(token_ids), is_turn=operation.kind == "generate"
                )
            case EndOperation.CLOSING:
                operation.close(self._tasks, self._closing.finish(answer.record, operation.claim))
            case EndOperation.GONE:
                return await self._overtaken(operation)
            case EndOperation.REGRESSED:
                return await self._fail(operation, "inv2")
            case EndOperation.UNKNOWN | EndOperation.UNLIKE:
                _log.error("a lane does not hold its session's history", session_id=operation.record.session_id)
                return await self._lose(operation) or (refusals.unconfirmed() if is_answered else None)
            case never:
                assert_never(never)
        operation.is_over()
        return None

    async def _fail(self, operation: Operation, invariant: str) -> KakeyaError | None:
        record = operation.record
        if await self._store.fail(record, operation.claim, invariant) is FailSession.GONE:
            return await self._overtaken(operation)
        _log.error("session failed", session_id=record.session_id, op_id=operation.op_id, invariant=invariant)
        self._tasks.start(self._workers.close_lane(record))
        operation.is_over()
        return refusals.failed(invariant)

    async def _lose(self, operation: Operation, *, for_good: bool = False) -> KakeyaError | None:
        """Its lane is gone, or nobody knows what it holds: the session is parked where it can be had again.

        Args:
            for_good: it is known that it cannot.
        """
        journal = operation.journal
        record = await self._store.get(operation.record.session_id) or operation.record
        outcome = await self._store.lose(
            record, operation.claim, self._retention, journal.length, journal.pending, for_good=for_good
        )
        error = None
        match outcome:
            case LoseSession.PARKED:
                if record.ephemeral and operation.is_answering:
                    operation.close(self._tasks, self._closing.close(record, Cause.REQUEST))
            case LoseSession.LOST:
                error = refusals.history_lost() if for_good else refusals.lost()
            case LoseSession.GONE | LoseSession.BUSY | LoseSession.ALIVE:  # the last two only a sweep hears
                return await self._overtaken(operation)
            case never:
                assert_never(never)
        _log.info(f"session {outcome}", session_id=record.session_id, worker_id=record.worker_id)
        operation.is_over()
        return error

    async def _overtaken(self, operation: Operation) -> KakeyaError:
        """Somebody else has taken the session: that is what the client should know."""
        error = refusals.overtaken(await self._store.get(operation.record.session_id))
        operation.is_over()
        return error
