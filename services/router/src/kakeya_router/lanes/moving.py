"""Moves sessions from worker to worker, where these do not read each other's snapshots."""

import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from enum import Enum, auto

import structlog

from kakeya_router.metrics import RouterMetrics
from kakeya_router.snapshots.snapshotting import Snapshotting
from kakeya_router.store.connection import is_done
from kakeya_router.store.session_record import Claim, Features, SessionId, SessionRecord
from kakeya_router.store.sessions.lane_store import LaneStore
from kakeya_router.store.sessions.stored_snapshots import StoredSnapshot
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.workers import placement
from kakeya_router.workers.fleet import Fleet
from kakeya_router.workers.placement import Placement
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_router.workers.worker_errors import LaneGone, WorkerError
from kakeya_shared.errors.tree import KakeyaError, StoreUnavailable
from kakeya_shared.process.detached_tasks import DetachedTasks
from kakeya_shared.rpc import tracing

_log = structlog.get_logger()

_TRANSFER_SECONDS = 60.0
# It is sent, written, and the script follows.
_OFFER_SECONDS = 2 * _TRANSFER_SECONDS + 10.0
_PAUSE_SECONDS = 5.0


class Unmoved(Enum):
    """Why a session is where it was."""

    KEPT = auto()
    """To be tried again: it is in use, or can go nowhere else now."""
    NOWHERE = auto()
    """It is not worth it, or no worker takes it; if it is parked, it can be resumed."""


@dataclass(eq=False, slots=True)
class Moving:
    """Moves sessions on which no operation runs, and those with one that their worker does not begin any more.

    The lane on the other worker is opened beside the one that the session has, as a copy, and one script exchanges the
    two if nothing has happened since; so an idle session can be called at any time. What is sent goes through the
    router, since workers need not reach each other. Called by `Drainer` and, in the middle of an operation, `Recovery`.
    """

    _store: LaneStore
    _fleet: Fleet
    _workers: WorkerClients
    _placement: Placement
    _snapshotting: Snapshotting
    _tasks: DetachedTasks
    _metrics: RouterMetrics
    _paused_until: dict[SessionId, float] = field(default_factory=dict, init=False)  # by session

    async def move(
        self, record: SessionRecord, claim: Claim | None = None, features: Features = frozenset()
    ) -> SessionRecord | Unmoved:
        """Gives the session a lane on another worker, the first that takes it; returns the session as it is there.

        Args:
            claim: of the operation that has the session, and that its own worker has not begun; None: none has.
            features: that this operation needs of a worker.

        Raises:
            StoreUnavailable
        """
        others = await self._others(record, features)
        if others and not claim and self._paused_until.get(record.session_id, 0.0) > time.monotonic():
            return Unmoved.KEPT
        for worker in placement.order_for(record.fingerprint, self._placement, others):
            moved, began = None, time.monotonic()
            try:
                with tracing.part("move", worker_id=worker.worker_id, left_worker_id=record.worker_id):
                    moved = await self._tasks.complete(self._move_to(worker, record, claim))
            except StoreUnavailable:
                raise
            except (WorkerError, KakeyaError) as error:
                _log.info("a session was not moved", session_id=record.session_id, error=repr(error))
                self._pause(record.session_id)
            else:
                return moved or Unmoved.KEPT
            finally:
                outcome = "kept" if moved is None else "moved"
                self._metrics.move_seconds.labels(outcome).observe(time.monotonic() - began)
        # Parked, it could be resumed from its journal only: no other worker reads its snapshots.
        return Unmoved.KEPT if others and record.journal_start else Unmoved.NOWHERE

    async def _others(self, record: SessionRecord, features: Features) -> Sequence[WorkerRecord]:
        """Workers that could hold it and do not read its snapshots; none where one does: to park it costs less."""
        workers = await self._fleet.some_anew((record.pool,), record.incarnation)
        left = next((worker for worker in workers if worker.incarnation == record.incarnation), None)
        others = [
            worker
            for worker in workers
            if worker is not left and worker.can_hold(record) and not worker.draining and not worker.lacks(features)
        ]
        if left is None or any(left.snapshot_store and other.snapshot_store == left.snapshot_store for other in others):
            return ()
        return others

    def _pause(self, session_id: SessionId) -> None:
        """What was refused is copied again only after a while."""
        now = time.monotonic()
        self._paused_until = {each: until for each, until in self._paused_until.items() if until > now}
        self._paused_until[session_id] = now + _PAUSE_SECONDS

    async def _move_to(self, worker: WorkerRecord, record: SessionRecord, claim: Claim | None) -> SessionRecord | None:
        """Where it is then, None: where it was; raises WorkerError or KakeyaError: this worker has not taken it."""
        offer = await self._store.offer_lane(record, _OFFER_SECONDS, claim)
        if not is_done(offer.outcome):
            return None
        there = replace(worker.holding(record), epoch=offer.epoch)
        try:
            moved = await self._exchange(record, there, worker, claim)
        except StoreUnavailable:
            raise  # it is not known which of the two lanes it has; the other one will be an orphan
        except (WorkerError, KakeyaError):
            await self._withdraw(record, there)
            raise
        if moved is None:
            await self._withdraw(record, there)
            return None
        await self._workers.close_lane(record)
        self._tasks.start(self._snapshotting.tidy(record))
        self._snapshotting.consider(moved, moved.journal_length, is_turn=True)
        _log.info("session moved", session_id=record.session_id, worker_id=moved.worker_id, left=record.worker_id)
        return moved

    async def _withdraw(self, record: SessionRecord, there: SessionRecord) -> None:
        await self._workers.close_lane(there)
        await self._store.withdraw_lane(record, there.epoch)

    async def _exchange(
        self, record: SessionRecord, there: SessionRecord, worker: WorkerRecord, claim: Claim | None
    ) -> SessionRecord | None:
        async with aclosing(self._workers.at(record.address).read_lane(record, _TRANSFER_SECONDS)) as parts:
            lane = await self._workers.at(there.address).write_lane(there, parts, _TRANSFER_SECONDS)
        digest = record.digest_at(lane.history_length)
        if None not in (digest, lane.history_digest) and digest != lane.history_digest:
            raise LaneGone("the lane holds another history than its session")
        there = there.with_lane(lane)
        new = await self._written(there, worker)
        answer = await self._store.move(record, there, claim, (new,) if new else (), worker.snapshot_store)
        if is_done(answer.outcome):
            return answer.record
        if new is not None:
            await self._snapshotting.delete([new.name], [worker])
        return None

    async def _written(self, there: SessionRecord, worker: WorkerRecord) -> StoredSnapshot | None:
        """What the lane on the other worker holds, in its store, where the journal has not all of it: what the session
        has of snapshots may go with the worker that it leaves. None: there is none, and it is moved nevertheless.
        """
        if not there.journal_start or not there.can_be_stored(worker.snapshot_store):
            return None
        try:
            return await self._snapshotting.write(there, 0)
        except (WorkerError, KakeyaError) as error:
            _log.info("no snapshot of a session that moves", session_id=there.session_id, error=repr(error))
            return None
