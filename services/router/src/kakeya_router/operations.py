"""Operations: who may use a session now, and what is written through when that ends, however it ends."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from kakeya_router import callers, refusals
from kakeya_router.detached_tasks import DetachedTasks, unheard
from kakeya_router.store import token_ranges
from kakeya_router.store.persistence import persist
from kakeya_router.store.records import SessionRecord
from kakeya_router.store.session_store import Intent, Reply, SessionStore
from kakeya_router.worker_client import LaneGone, RunningCall, WorkerClients, WorkerError, WorkerUnreachable
from kakeya_shared.errors import (
    InvariantViolated,
    KakeyaError,
    OperationStopped,
    StoreUnavailable,
)
from kakeya_stubs.worker.v1.verifier_pb2 import LaneState

_log = structlog.get_logger()

# A worker ends an operation within a step, which on a small and busy host can take seconds. Waiting costs less
# than giving a session up that is well.
_STOP_SECONDS = 10.0


class Operation:
    """One running Append or Generate.

    Attributes:
        record: the session as it was when the operation began.
        tokens_per_minute: quota of the caller; 0 for none.
        op_id: names it in the store, in logs and to the client.
        call: the worker's call; ended when the session is taken away.
        at_worker: set before the worker is called; from then on its lane may differ from the record.
    """

    def __init__(self, record: SessionRecord, tokens_per_minute: int) -> None:
        self.record = record
        self.tokens_per_minute = tokens_per_minute
        self.op_id = secrets.token_hex(8)
        self.call = RunningCall()
        self.at_worker = False
        self.over = False
        self.ending: asyncio.Task[KakeyaError | None] | None = None


class Operations:
    """Runs operations.

    Args:
        lease_seconds: renewed three times in its length, so that one lost renewal does no harm.
        lost_retention_seconds: how long a lost session's record answers.
    """

    def __init__(
        self,
        store: SessionStore,
        workers: WorkerClients,
        tasks: DetachedTasks,
        *,
        lease_seconds: float,
        lost_retention_seconds: float,
    ) -> None:
        self._store = store
        self._workers = workers
        self._tasks = tasks
        self._renew_seconds = lease_seconds * 0.3
        self._lost_retention_ms = round(lost_retention_seconds * 1000)

    @asynccontextmanager
    async def running(self, record: SessionRecord, intent: Intent) -> AsyncIterator[Operation]:
        """Holds the session; on the way out, what the worker has committed is in the store and the session free.

        Leave it with `finish`, or by an error: then the worker is told to stop and asked what is committed. An
        operation that never came to the worker leaves no trace.

        Raises:
            SessionNotFound, OperationRunning, InvariantViolated, WorkerLost: the session cannot be had.
            QuotaExceeded: the caller's tenant has used up its tokens for now.
            SessionClosed, WorkerLost, OperationStopped, InvariantViolated: it was taken away in the middle.
            StoreUnavailable: the rest is done once Redis is back.
        """
        operation = Operation(record, callers.current().quota.tokens_per_minute if intent.is_charged else 0)
        await self._begin(operation, intent)
        renewal = self._tasks.start(self._renew(operation))
        try:
            yield operation
        except BaseException as error:
            instead = await self._leave(operation, error)
            shown = instead or _broken_off(error)
            if shown is None or _client_is_gone(error):
                raise
            raise shown from error
        else:
            await self._leave(operation, None)
        finally:
            renewal.cancel()

    async def finish(self, operation: Operation, lane: LaneState) -> None:
        """Writes through what the worker committed and frees the session; raises as `running`."""
        operation.ending = self._tasks.start(self._write_through(operation, lane))
        error = await asyncio.shield(operation.ending)
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
            reply = await self._store.begin_operation(
                operation.record, operation.op_id, intent, operation.tokens_per_minute
            )
            operation.record = reply.record or operation.record
            if reply.outcome == "begun":
                return
            if reply.outcome != "recover":
                operation.over = True
                raise refusal(reply, operation.record)
            await self._recover(operation)

    async def _recover(self, operation: Operation) -> None:
        """Ends the operation of a router that vanished with what its worker has committed."""
        _log.info("operation taken over", session_id=operation.record.session_id, op_id=operation.op_id)
        operation.at_worker = True
        error = await self._settle(operation, None)
        if error is not None:
            raise error
        operation.at_worker = operation.over = False

    async def _undo(self, operation: Operation, taking: asyncio.Task[None]) -> None:
        unheard(taking)
        await asyncio.wait([taking])
        await self._settle_persistently(operation, None)

    async def _renew(self, operation: Operation) -> None:
        while True:
            await asyncio.sleep(self._renew_seconds)
            try:
                reply = await self._store.renew_operation(operation.record, operation.op_id)
            except StoreUnavailable:
                continue  # while Redis is away nobody can take the session over
            if reply.outcome == "gone":
                operation.call.cancel()
                return

    async def _leave(self, operation: Operation, error: BaseException | None) -> KakeyaError | None:
        """Settles; where Redis does not answer, later and not while the client waits."""
        if not isinstance(error, StoreUnavailable):
            try:
                return await self._tasks.complete(self._settle(operation, error))
            except StoreUnavailable as unavailable:
                self._tasks.start(self._settle_persistently(operation, error))
                return unavailable
        self._tasks.start(self._settle_persistently(operation, error))
        return None

    async def _settle_persistently(self, operation: Operation, error: BaseException | None) -> None:
        await persist(lambda: self._settle(operation, error))

    async def _settle(self, operation: Operation, error: BaseException | None) -> KakeyaError | None:
        """Ends what is left of an operation; returns what has become of the session if it is not well."""
        if operation.ending is not None:
            unheard(operation.ending)
            await asyncio.wait([operation.ending])
        if operation.over:
            return None
        record = operation.record
        if operation.call.cancelled:
            return await self._over(operation, "gone", None)
        if not operation.at_worker:
            await self._store.release_operation(record, operation.op_id)
            return None
        if isinstance(error, InvariantViolated):
            return await self._fail(operation, error.metadata.get("invariant", "inv1"))
        try:
            lane = await self._workers.at(record.address).stop(record, _STOP_SECONDS)
        except InvariantViolated as violated:
            return await self._fail(operation, violated.metadata.get("invariant", "inv1"))
        except (WorkerError, KakeyaError) as stop_error:
            # Without the truth about its lane the session cannot go on.
            _log.warning("worker does not stop", session_id=record.session_id, error=repr(stop_error))
            return await self._lose(operation)
        return await self._write_through(operation, lane)

    async def _write_through(self, operation: Operation, lane: LaneState) -> KakeyaError | None:
        retained = token_ranges.text(lane.retained)
        reply = await self._store.end_operation(
            operation.record, operation.op_id, lane.history_length, lane.kv_live_bytes, retained
        )
        if reply.outcome == "regressed":
            return await self._fail(operation, "inv2")
        return await self._over(operation, reply.outcome, None)

    async def _fail(self, operation: Operation, invariant: str) -> KakeyaError | None:
        record = operation.record
        reply = await self._store.fail(record, operation.op_id, invariant)
        if reply.outcome == "failed":
            _log.error("session failed", session_id=record.session_id, op_id=operation.op_id, invariant=invariant)
            self._tasks.start(self._free_lane(record))
        return await self._over(operation, reply.outcome, refusals.failed(invariant))

    async def _lose(self, operation: Operation) -> KakeyaError | None:
        record = operation.record
        reply = await self._store.lose(record, operation.op_id, self._lost_retention_ms)
        if reply.outcome == "lost":
            _log.info("session lost", session_id=record.session_id, worker_id=record.worker_id)
        return await self._over(operation, reply.outcome, refusals.lost())

    async def _over(self, operation: Operation, outcome: str, error: KakeyaError | None) -> KakeyaError | None:
        """`error`, unless somebody else has taken the session: then that is what the client should know."""
        if outcome == "gone":
            error = refusals.overtaken(await self._store.get(operation.record.session_id))
        operation.over = True
        return error

    async def _free_lane(self, record: SessionRecord) -> None:
        try:
            await self._workers.at(record.address).close_session(record, _STOP_SECONDS)
        except (WorkerError, KakeyaError) as error:
            # The worker learns it from the orphans of its next complete heartbeat.
            _log.info("lane not freed yet", session_id=record.session_id, error=repr(error))


def refusal(reply: Reply, record: SessionRecord) -> KakeyaError:
    """Why a session cannot be had, from what lua/begin_operation.lua or lua/use_source.lua answers."""
    match reply.outcome:
        case "busy":
            return refusals.busy()
        case "lost":
            return refusals.lost()
        case "failed":
            return refusals.failed_before(record)
        case "quota":
            quota, limit, retry_ms = reply.rest
            return refusals.quota_exceeded(quota, limit, record.tenant, record.key_id, int(retry_ms) / 1000)
    return refusals.not_found()


def _client_is_gone(error: BaseException) -> bool:
    """Whether this call itself was cancelled, as opposed to the worker's call."""
    if isinstance(error, GeneratorExit):
        return True
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _broken_off(error: BaseException) -> OperationStopped | None:
    if isinstance(error, WorkerUnreachable | LaneGone | asyncio.CancelledError):
        return OperationStopped("the call to the worker broke off; what was committed stays")
    return None
