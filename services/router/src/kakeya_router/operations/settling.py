"""What becomes of a session whose operation does not end well: it has another router, has failed, or has no lane."""

from dataclasses import dataclass
from typing import assert_never

import structlog

from kakeya_router.contract import refusals
from kakeya_router.lanes.closing import Closing
from kakeya_router.metrics import RouterMetrics
from kakeya_router.operations.operation import Operation
from kakeya_router.store.connection import is_done
from kakeya_router.store.outcomes import LoseSession
from kakeya_router.store.sessions.operation_store import OperationStore
from kakeya_router.store.sessions.session_changes import Cause, TimesToLive
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_shared.errors.tree import InvariantViolated, KakeyaError
from kakeya_shared.process.detached_tasks import DetachedTasks

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Settling:
    """Called by `Operations` at the end; each method ends the operation and returns what its client should know.

    Attributes:
        times_to_live: of sessions whose lane is gone.
    """

    _store: OperationStore
    _workers: WorkerClients
    _closing: Closing
    _tasks: DetachedTasks
    times_to_live: TimesToLive
    _metrics: RouterMetrics

    async def overtaken(self, operation: Operation) -> KakeyaError:
        """Another router has taken the session."""
        error = refusals.overtaken(await self._store.get(operation.record.session_id))
        operation.is_over()
        return error

    async def fail(self, operation: Operation, violated: InvariantViolated) -> KakeyaError:
        """Its lane does not hold what it must: it is freed, and the session of no use any more."""
        record, invariant = operation.record, violated.metadata.get("invariant", "inv1")
        if not is_done(await self._store.fail(record, operation.claim, invariant)):
            return await self.overtaken(operation)
        self._metrics.invariant_violations.labels(invariant).inc()
        _log.error("session failed", session_id=record.session_id, op_id=operation.op_id, invariant=invariant)
        self._tasks.start(self._workers.close_lane(record))
        if operation.closes:
            operation.close(self._closing.close(record, Cause.REQUEST))
        operation.is_over()
        return refusals.failed(invariant)

    async def lose(self, operation: Operation, *, for_good: bool = False) -> KakeyaError | None:
        """Its lane is gone, or nobody knows what it holds: the session is parked where it can be resumed.

        Args:
            for_good: it is known that it cannot.

        Returns:
            None: it can be gone on with.
        """
        journal = operation.journal
        record = await self._store.get(operation.record.session_id) or operation.record
        outcome = await self._store.lose(
            record, operation.claim, self.times_to_live, journal.length, journal.pending, for_good=for_good
        )
        error = None
        match outcome:
            case LoseSession.PARKED:
                pass
            case LoseSession.LOST:
                self._metrics.lost_sessions.inc()
                error = refusals.history_lost() if for_good else refusals.lost()
            case LoseSession.GONE | LoseSession.BUSY | LoseSession.ALIVE:  # the last two only a sweep hears
                return await self.overtaken(operation)
            case never:
                assert_never(never)
        is_last = record.ephemeral and operation.is_answering and outcome is LoseSession.PARKED
        if operation.closes or is_last:
            operation.close(self._closing.close(record, Cause.REQUEST))
        _log.info(f"session {outcome}", session_id=record.session_id, worker_id=record.worker_id)
        operation.is_over()
        return error
