"""Drains workers that shut down, or that an operator wants drained: their sessions leave as these become idle."""

import asyncio
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

import structlog

from kakeya_router.lanes.moving import Moving, Unmoved
from kakeya_router.sessions.park_requests import ParkRequests
from kakeya_router.store.session_record import Incarnation, SessionId, SessionRecord
from kakeya_router.store.sessions.session_lists import SessionLists
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.workers.fleet import Fleet
from kakeya_router.workers.worker_errors import WorkerError
from kakeya_shared.errors.tree import KakeyaError, SnapshotStoreUnavailable, StoreUnavailable
from kakeya_shared.process.detached_tasks import unheard
from kakeya_shared.process.endured_loop import endured_loop

_BATCH = 64
_NUM_AT_ONCE = 8

_log = structlog.get_logger()


@dataclass(eq=False, slots=True)
class Drainer:
    """Looks for workers that drain, and parks or moves their idle sessions.

    A session is parked where other workers read its snapshots; else it is moved to another worker, where there is one.
    Each router runs one; of several that park or move the same session, one does it. Started by `Router`.

    Attributes:
        interval_seconds: between two looks at the workers.
    """

    _session_store: SessionLists
    _fleet: Fleet
    _requests: ParkRequests
    _moving: Moving
    _: KW_ONLY
    interval_seconds: float
    _running: dict[Incarnation, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _left: dict[Incarnation, set[SessionId]] = field(default_factory=dict, init=False)  # sessions that stay

    async def run(self) -> None:
        """Drains until it is cancelled."""
        try:
            await endured_loop(
                "draining", self._drain, interval_seconds=self.interval_seconds, put_off_by=(StoreUnavailable,)
            )
        finally:
            for task in self._running.values():
                task.cancel()

    async def _drain(self) -> None:
        if any(worker.draining for worker in self._fleet.workers()):
            await self._fleet.look()  # an operator may have changed his mind
        draining = [worker for worker in self._fleet.workers() if worker.draining]
        self._left = {worker.incarnation: self._left.get(worker.incarnation, set()) for worker in draining}
        for worker in draining:
            if worker.incarnation not in self._running:  # one that hangs holds up no other
                task = self._running[worker.incarnation] = asyncio.create_task(self._drain_worker(worker))
                unheard(task)
                task.add_done_callback(partial(self._ended, worker.incarnation))

    def _ended(self, incarnation: Incarnation, _task: asyncio.Task[None]) -> None:
        del self._running[incarnation]

    async def _drain_worker(self, worker: WorkerRecord) -> None:
        """Has what is idle now leave; the next pass does it again."""
        slots = asyncio.Semaphore(_NUM_AT_ONCE)
        while records := await self._session_store.idle_of(worker.pool, worker.incarnation, _BATCH):
            leaving = (self._leaves(record, slots) for record in records)
            left = await asyncio.gather(*leaving, return_exceptions=True)  # all of them have ended then
            for error in left:
                if isinstance(error, BaseException):
                    raise error
            if not any(left):
                return  # what is left cannot go anywhere, or is in use again

    async def _leaves(self, record: SessionRecord, slots: asyncio.Semaphore) -> bool:
        async with slots:
            try:
                moved = await self._moving.move(record)
                if moved is not Unmoved.NOWHERE:
                    return moved is not Unmoved.KEPT
                return (await self._requests.park(record, only_off=record.incarnation)).freed_bytes > 0
            except StoreUnavailable:
                raise
            except SnapshotStoreUnavailable as error:
                self._report(record, error)
            except (WorkerError, KakeyaError) as error:
                _log.debug("a session stays on a worker that drains", session_id=record.session_id, error=repr(error))
        return False

    def _report(self, record: SessionRecord, error: SnapshotStoreUnavailable) -> None:
        """Once: it is tried again with each pass."""
        reported = self._left.setdefault(record.incarnation, set())
        if record.session_id not in reported:
            reported.add(record.session_id)
            _log.warning(
                "a session cannot leave a worker that drains",
                session_id=record.session_id,
                worker_id=record.worker_id,
                error=error.message,
            )
