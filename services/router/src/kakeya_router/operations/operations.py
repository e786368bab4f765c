"""Operations: who may use a session now, and what is written through when that ends, however it ends."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import structlog

from kakeya_router.access import callers
from kakeya_router.contract import refusals
from kakeya_router.contract.refusals import HistoryLost
from kakeya_router.lanes.closing import Closing
from kakeya_router.operations.journal import Journal
from kakeya_router.operations.lanes import Lanes
from kakeya_router.operations.operation import Operation
from kakeya_router.snapshots.snapshotting import Mark, Snapshotting
from kakeya_router.store.persistence import persist
from kakeya_router.store.records import SessionRecord, State
from kakeya_router.store.sessions import token_ranges
from kakeya_router.store.sessions.session_changes import Cause, Intent, LaneAtRest
from kakeya_router.store.sessions.session_lists import Retention
from kakeya_router.store.sessions.session_replies import Reply, Taken
from kakeya_router.store.sessions.session_store import SessionStore
from kakeya_router.tasks import DetachedTasks, unheard
from kakeya_router.workers.worker_client import WorkerError
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_shared.errors.tree import (
    Draining,
    InvariantViolated,
    KakeyaError,
    StoreUnavailable,
)
from kakeya_shared.rpc import rpc_boundary
from kakeya_stubs.worker.v1.verifier_pb2 import LaneState

_log = structlog.get_logger()

# A worker ends an operation within a step, which on a small and busy host can take seconds. Waiting costs less
# than giving a session up that is well.
_STOP_SECONDS = 10.0
# The end of a stream does not wait for a worker that hangs.
_CLOSE_SECONDS = 1.0


class Operations:
    """Runs operations.

    Args:
        lease_seconds: renewed three times in its length, so that one lost renewal does no harm.
        retention: of sessions whose lane is gone.
    """

    def __init__(
        self,
        store: SessionStore,
        workers: WorkerClients,
        tasks: DetachedTasks,
        lanes: Lanes,
        snapshotting: Snapshotting,
        closing: Closing,
        *,
        lease_seconds: float,
        retention: Retention,
    ) -> None:
        self._store = store
        self._workers = workers
        self._tasks = tasks
        self._renew_seconds = lease_seconds * 0.3
        self._retention = retention
        self._lanes = lanes
        self._snapshotting = snapshotting
        self._closing = closing
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
            await self._lanes.make_ready(operation)
            yield operation
        except BaseException as error:
            if _can_go_on(error):
                operation.is_answering = False
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
            await self._lanes.confirm(operation)

    def check_room(self, record: SessionRecord, num_tokens: int) -> None:
        """Raises SnapshotStoreUnavailable: so many tokens more could be lost with the session's worker."""
        self._snapshotting.check_room(record, num_tokens)

    async def _end(
        self, operation: Operation, renewal: "asyncio.Task[None]", error: BaseException | None
    ) -> KakeyaError | None:
        """Settles, and then lets go of the operation, also where nobody waits for that any more."""
        try:
            return await self._leave(operation, error)
        finally:
            self._running.discard(operation)
            renewal.cancel()

    async def finish(self, operation: Operation, lane: LaneState) -> None:
        """Writes through what the worker committed and frees the session; raises as `running`."""
        operation.ending = self._tasks.start(self._write_through(operation, lane, is_answered=True))
        error = await asyncio.shield(operation.ending)
        if error is not None:
            raise error

    async def closed(self, operation: Operation) -> None:
        """Waits a moment for a session that has ended with its answer to be closed, so that its lane is free."""
        if operation.closing is not None:
            await asyncio.wait([operation.closing], timeout=_CLOSE_SECONDS)

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
                operation.record, operation.claim, intent, operation.tokens_per_minute
            )
            operation.record = reply.record or operation.record
            operation.journal = self._journal(operation)
            if reply.outcome == "moved":
                continue
            operation.homeless = reply.outcome == "homeless"
            if reply.outcome in ("begun", "homeless"):
                return
            if reply.outcome != "recover":
                operation.over = True
                raise refusal(reply, operation.record)
            await self._recover(operation)

    def _journal(self, operation: Operation) -> Journal:
        mark = Mark()

        def written(length: int) -> None:
            self._snapshotting.consider(operation.record, length, is_turn=False, mark=mark)

        return Journal(self._store, operation.record, operation.claim, self._snapshotting.journal_tokens, written)

    async def _recover(self, operation: Operation) -> None:
        """Ends the operation of a router that vanished with what its worker has committed."""
        _log.info("operation taken over", session_id=operation.record.session_id, op_id=operation.op_id)
        operation.at_worker = True
        operation.is_answering = not operation.goes_on  # nobody comes for the rest of it
        error = await self._settle(operation, None)
        if error is not None:
            raise error
        operation.at_worker = operation.is_answering = operation.over = False

    async def _undo(self, operation: Operation, taking: asyncio.Task[None]) -> None:
        unheard(taking)
        await asyncio.wait([taking])
        await self._settle_persistently(operation, None)

    async def _renew(self, operation: Operation) -> None:
        progress_kept_at = time.monotonic()
        while True:
            await asyncio.sleep(self._renew_seconds)
            try:
                # A connection may hang while Redis is well: the next renewal, over another one, is still in time.
                async with asyncio.timeout(self._renew_seconds):
                    reply = await self._store.renew_operation(operation.record, operation.claim)
            except (StoreUnavailable, TimeoutError):
                continue  # while Redis is away nobody can take the session over
            if reply.outcome == "gone":
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
        if operation.work is not None:
            unheard(operation.work)
            await asyncio.wait([operation.work])
        if operation.kind == "rewind" and operation.at_worker:
            await self._look_again(operation)
        record = operation.record
        if operation.call.cancelled or isinstance(error, Taken):
            return await self._over(operation, "gone", None)
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
        return await self._write_through(operation, stopped.lane, stopped.token_ids)

    async def _look_again(self, operation: Operation) -> None:
        """A rewind may have taken place without an answer."""
        record = await self._store.get(operation.record.session_id)
        if record is not None:
            # Another operation may have begun since, which the worker must not take this one for.
            operation.record = replace(record, operation_number=operation.record.operation_number)
            operation.journal.length = min(operation.journal.length, record.journal_length)

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
        at_rest = LaneAtRest(
            lane.history_length,
            lane.kv_live_bytes,
            token_ranges.text(lane.retained),
            journal.length,
            token_ids,
            lane.num_rewinds,
            lane.history_digest if lane.HasField("history_digest") else None,
        )
        reply = await self._store.end_operation(
            operation.record, operation.claim, at_rest, closes=operation.is_answering
        )
        if reply.outcome == "regressed":
            return await self._fail(operation, "inv2")
        if reply.outcome in ("unknown", "unlike"):
            _log.error("a lane does not hold its session's history", session_id=operation.record.session_id)
            error = await self._lose(operation)
            return error or (refusals.unconfirmed() if is_answered else None)
        if reply.outcome == "ended":
            self._snapshotting.consider(
                operation.record, journal.length + len(token_ids), is_turn=operation.kind == "generate"
            )
        if reply.outcome == "closing" and reply.record is not None:
            operation.closing = self._tasks.start(self._closing.finish(reply.record, operation.claim))
            unheard(operation.closing)
        return await self._over(operation, reply.outcome, None)

    async def _fail(self, operation: Operation, invariant: str) -> KakeyaError | None:
        record = operation.record
        reply = await self._store.fail(record, operation.claim, invariant)
        if reply.outcome == "failed":
            _log.error("session failed", session_id=record.session_id, op_id=operation.op_id, invariant=invariant)
            self._tasks.start(self._free_lane(record))
        return await self._over(operation, reply.outcome, refusals.failed(invariant))

    async def _lose(self, operation: Operation, *, for_good: bool = False) -> KakeyaError | None:
        """Its lane is gone, or nobody knows what it holds: the session is parked where it can be had again.

        Args:
            for_good: it is known that it cannot.
        """
        journal = operation.journal
        record = await self._store.get(operation.record.session_id) or operation.record
        reply = await self._store.lose(
            record, operation.claim, self._retention, journal.length, journal.pending, for_good=for_good
        )
        if reply.outcome in ("lost", "parked"):
            _log.info(f"session {reply.outcome}", session_id=record.session_id, worker_id=record.worker_id)
        if reply.outcome == "parked" and record.ephemeral and operation.is_answering:
            operation.closing = self._tasks.start(self._closing.close(record, Cause.REQUEST))
            unheard(operation.closing)
        lost = refusals.history_lost() if for_good else refusals.lost()
        return await self._over(operation, reply.outcome, lost if reply.outcome == "lost" else None)

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
        case "unknown":
            return refusals.unknown_operation(record)
        case "quota":
            quota, limit, retry_ms = reply.rest
            return refusals.quota_exceeded(quota, limit, record.tenant, record.key_id, int(retry_ms) / 1000)
    return refusals.not_found()


def _can_go_on(error: BaseException | None) -> bool:
    """Whether the client of a Generate that ended so may go on with it, here or at another router."""
    return isinstance(error, StoreUnavailable | Taken) or isinstance(rpc_boundary.why_cancelled(error), Draining)


def _client_is_gone(error: BaseException) -> bool:
    """Whether this call itself was cancelled, as opposed to the worker's call."""
    if isinstance(error, GeneratorExit):
        return True
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
