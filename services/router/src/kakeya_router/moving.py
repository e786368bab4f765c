"""Moves idle sessions from worker to worker, where these do not read each other's snapshots."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from enum import Enum, auto

import structlog

from kakeya_router.detached_tasks import DetachedTasks
from kakeya_router.lanes import with_lane
from kakeya_router.placement import Placement
from kakeya_router.snapshotting import Snapshotting
from kakeya_router.store.records import SessionRecord, WorkerRecord
from kakeya_router.store.session_store import SessionStore
from kakeya_router.store.worker_store import WorkerStore
from kakeya_router.worker_client import WorkerClients, WorkerError
from kakeya_shared.errors import KakeyaError, StoreUnavailable

_log = structlog.get_logger()

_TRANSFER_SECONDS = 60.0
# Its end, and the script that follows.
_OFFER_SECONDS = _TRANSFER_SECONDS + 10.0
_CLOSE_SECONDS = 10.0


class Move(Enum):
    """What became of a try to move a session."""

    MOVED = auto()
    KEPT = auto()
    """It is where it was: somebody uses or moves it, or no worker has taken it. It may be tried again."""
    NOWHERE = auto()
    """No worker would take it, or it is not worth it: another one reads its snapshots, and to park it costs less."""


class Moving:
    """Moves sessions on which no operation runs.

    It holds none of them meanwhile: the lane on the other worker is opened beside the one that the session has, and one
    script exchanges the two if nothing has happened since. What is sent goes through the router, since workers need not
    reach each other.
    """

    def __init__(
        self,
        store: SessionStore,
        worker_store: WorkerStore,
        workers: WorkerClients,
        placement: Placement,
        snapshotting: Snapshotting,
        tasks: DetachedTasks,
    ) -> None:
        self._store = store
        self._worker_store = worker_store
        self._workers = workers
        self._placement = placement
        self._snapshotting = snapshotting
        self._tasks = tasks

    async def move(self, record: SessionRecord) -> Move:
        """Gives the session a lane on another worker; raises StoreUnavailable."""
        places = await self._places(record)
        for worker in places:
            if await self._tasks.complete(self._move_to(worker, record)):
                return Move.MOVED
        return Move.KEPT if places else Move.NOWHERE

    async def _places(self, record: SessionRecord) -> Sequence[WorkerRecord]:
        workers = await self._worker_store.workers(record.pool)
        left = next((worker for worker in workers if worker.incarnation == record.incarnation), None)
        others = [
            worker
            for worker in workers
            if worker is not left and worker.fingerprint == record.fingerprint and not worker.draining
        ]
        if left is None or any(left.snapshot_store and other.snapshot_store == left.snapshot_store for other in others):
            return ()
        roomy = [worker for worker in others if worker.has_room]
        return self._placement.order(roomy) if roomy else ()

    async def _move_to(self, worker: WorkerRecord, record: SessionRecord) -> bool:
        offer = await self._store.offer_lane(record, _OFFER_SECONDS)
        if offer.outcome != "offered":
            return False
        there = replace(
            record,
            worker_id=worker.worker_id,
            incarnation=worker.incarnation,
            address=worker.address,
            epoch=int(offer.rest[0]),
            reserved_bytes=worker.lane_bytes,
        )
        try:
            moved = await self._exchange(record, there)
        except (WorkerError, KakeyaError) as error:
            if isinstance(error, StoreUnavailable):
                raise
            _log.info("a session was not moved", session_id=record.session_id, error=repr(error))
            moved = None
        if moved is None:
            await self._close_lane(there)
            await self._store.withdraw_lane(record, there.epoch)
            return False
        await self._close_lane(record)
        self._snapshotting.consider(moved, moved.journal_length, is_turn=True)
        _log.info("session moved", session_id=record.session_id, worker_id=moved.worker_id, left=record.worker_id)
        return True

    async def _exchange(self, record: SessionRecord, there: SessionRecord) -> SessionRecord | None:
        async with aclosing(self._workers.at(record.address).read_lane(record, _TRANSFER_SECONDS)) as parts:
            lane = await self._workers.at(there.address).write_lane(there, parts, _TRANSFER_SECONDS)
        return (await self._store.move(record, with_lane(there, lane))).record

    async def _close_lane(self, record: SessionRecord) -> None:
        """A worker that does not answer learns it from the orphans of its next complete heartbeat."""
        try:
            await self._workers.at(record.address).close_session(record, _CLOSE_SECONDS)
        except (WorkerError, KakeyaError) as error:
            _log.debug("a lane was left behind", session_id=record.session_id, error=repr(error))
