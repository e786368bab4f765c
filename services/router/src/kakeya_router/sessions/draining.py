"""Empties workers that shut down, or that an operator wants emptied, of their sessions as these become idle.

A session is parked where other workers read its snapshots; else it is moved to another worker, where there is one.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial

import structlog

from kakeya_router.lanes.moving import Move, Moving
from kakeya_router.sessions.park_requests import ParkRequests
from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.session_record import SessionRecord
from kakeya_router.store.sessions.session_lists import SessionLists
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.workers.worker_errors import WorkerError
from kakeya_shared.errors.tree import KakeyaError, SnapshotStoreUnavailable, StoreUnavailable

_BATCH = 64
_NUM_AT_ONCE = 8

_log = structlog.get_logger()


class Drainer:
    """Each router has one; of several that take the same session away, one does it.

    Args:
        interval_seconds: between two looks at the workers.
    """

    def __init__(
        self,
        session_store: SessionLists,
        worker_store: WorkerStore,
        requests: ParkRequests,
        moving: Moving,
        *,
        interval_seconds: float,
    ) -> None:
        self._session_store = session_store
        self._worker_store = worker_store
        self._requests = requests
        self._moving = moving
        self._interval_seconds = interval_seconds
        self._running: dict[str, asyncio.Task[None]] = {}  # by incarnation
        self._left: dict[str, set[str]] = {}  # sessions that cannot go anywhere, by incarnation

    async def run(self) -> None:
        """Drains until it is cancelled."""
        try:
            while True:
                await asyncio.sleep(self._interval_seconds)
                await self._endured(self._drain())
        finally:
            for task in self._running.values():
                task.cancel()

    async def _endured(self, work: Coroutine[None, None, None]) -> None:
        """Whatever one pass stumbles over, the next must take place."""
        try:
            await work
        except StoreUnavailable as error:
            _log.info("draining waits for Redis", error=error.message)
        except Exception:  # one that nobody foresaw must not end the loop
            _log.exception("draining pass failed")

    async def _drain(self) -> None:
        draining = [worker for worker in await self._worker_store.all_workers() if worker.draining]
        self._left = {worker.incarnation: self._left.get(worker.incarnation, set()) for worker in draining}
        for worker in draining:
            if worker.incarnation not in self._running:  # one that hangs holds up no other
                task = asyncio.create_task(self._endured(self._empty(worker)))
                self._running[worker.incarnation] = task
                task.add_done_callback(partial(self._ended, worker.incarnation))

    def _ended(self, incarnation: str, _task: asyncio.Task[None]) -> None:
        del self._running[incarnation]

    async def _empty(self, worker: WorkerRecord) -> None:
        """Takes away what is idle now; raises StoreUnavailable."""
        slots = asyncio.Semaphore(_NUM_AT_ONCE)
        while records := await self._session_store.idle_of(worker.pool, worker.incarnation, _BATCH):
            taking = (self._take_away(record, slots) for record in records)
            taken = await asyncio.gather(*taking, return_exceptions=True)  # all of them have ended then
            for error in taken:
                if isinstance(error, BaseException):
                    raise error
            if not any(taken):
                return  # what is left cannot go anywhere, or is in use again

    async def _take_away(self, record: SessionRecord, slots: asyncio.Semaphore) -> bool:
        async with slots:
            try:
                moved = await self._moving.move(record)
                return moved is Move.MOVED or (moved is Move.NOWHERE and await self._parks(record))
            except StoreUnavailable:
                raise
            except SnapshotStoreUnavailable as error:
                self._report(record, error)
            except (WorkerError, KakeyaError) as error:
                _log.debug("a session was not taken away", session_id=record.session_id, error=repr(error))
        return False

    async def _parks(self, record: SessionRecord) -> bool:
        return (await self._requests.park(record, only_off=record.incarnation)).freed_bytes > 0

    def _report(self, record: SessionRecord, error: SnapshotStoreUnavailable) -> None:
        """Once: it is tried again with each pass."""
        reported = self._left.setdefault(record.incarnation, set())
        if record.session_id not in reported:
            reported.add(record.session_id)
            _log.warning(
                "a session cannot be taken off a worker that is being emptied",
                session_id=record.session_id,
                worker_id=record.worker_id,
                error=error.message,
            )
