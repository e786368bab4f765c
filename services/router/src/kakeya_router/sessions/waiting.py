"""How a CreateSession waits for its turn, and what it does when that comes."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from kakeya_router.contract import refusals
from kakeya_router.lanes import candidates
from kakeya_router.lanes.admission_queue import TICK_SECONDS, AdmissionQueue
from kakeya_router.lanes.waiter import Waiter
from kakeya_router.lanes.wanted import Wanted
from kakeya_router.sessions.opening import Attempt, Opening
from kakeya_router.sessions.sources import Sources
from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.records import SessionRecord, WorkerRecord
from kakeya_router.workers import placement
from kakeya_router.workers.placement import Placement
from kakeya_shared.errors.tree import InvalidField, KakeyaError, NoCapacity, NoWorker, OperationRunning


class Waiting:
    """Lets calls wait.

    Args:
        queue_seconds: how long; 0: for ever.
    """

    def __init__(
        self,
        queue: AdmissionQueue,
        worker_store: WorkerStore,
        opening: Opening,
        placement: Placement,
        sources: Sources,
        *,
        queue_seconds: float,
    ) -> None:
        self._queue = queue
        self._worker_store = worker_store
        self._opening = opening
        self._placement = placement
        self._sources = sources
        self._queue_seconds = queue_seconds

    async def wait(
        self, wanted: Wanted, fitting: Sequence[WorkerRecord], refused: Mapping[str, InvalidField]
    ) -> SessionRecord | None:
        """Opens a session when its turn comes.

        It stands in the line of each pool that serves the model now; a pool that begins to serve it later gets the
        calls that come later.

        Args:
            fitting: workers that serve what is wanted.
            refused: what those of them said that cannot hold it, by incarnation.

        Returns:
            The record of the open session; None when another call with the request id made one.

        Raises:
            InvalidField: no worker can hold it.
            QueueFull, QueueTimedOut, QuotaExceeded
            NoWorker: there is none any more when the time is over.
            Draining, StoreUnavailable, and what `Sources.find` raises
        """
        pools = {worker.pool for worker in fitting}
        waiter = Waiter(wanted, min(worker.lane_bytes for worker in fitting), dict(refused))
        until = asyncio.get_running_loop().time() + self._queue_seconds if self._queue_seconds else None
        async with self._queue.waiting(waiter, pools):
            while True:
                try:
                    async with asyncio.timeout_at(until):
                        await waiter.woken()
                        if not waiter.answered:
                            await self._look_again(waiter, pools)
                except TimeoutError:
                    raise await self._too_late(waiter, pools) from None
                record = None if waiter.answered else await self._open(waiter, pools)
                if record is not None or waiter.answered:
                    return record
                self._queue.have_room_made(waiter)

    async def _look_again(self, waiter: Waiter, pools: Collection[str]) -> None:
        """Where it has lost its place, or its source is on another worker by now, it lines up again."""
        if waiter.displaced:
            await self._queue.re_enter(waiter)
        before = waiter.wanted
        try:
            waiter.wanted = await self._sources.renewed(before)
        except OperationRunning:
            # Else it is its turn, and others would wait with it; here maybe another fork has the source resumed.
            if not waiter.stranded:
                raise
        if (waiter.wanted.incarnation, waiter.wanted.snapshot_store) != (before.incarnation, before.snapshot_store):
            await self._queue.enter_anew(waiter, pools)

    async def _open(self, waiter: Waiter, pools: Collection[str]) -> SessionRecord | None:
        workers = list(filter(waiter.wanted.fits, await self._workers(pools)))
        _check_possible(waiter, workers)
        now = asyncio.get_running_loop().time()
        untried = [
            worker
            for worker in workers
            if worker.incarnation not in waiter.refused and waiter.paused.get(worker.incarnation, 0) <= now
        ]
        for worker in placement.order_for(waiter.wanted.fingerprint, self._placement, untried):
            attempt = self._attempt(waiter, worker)
            try:
                record = await self._opening.open(attempt)
            except (InvalidField, NoCapacity, NoWorker) as refusal:
                if attempt.reserved or attempt.overtaken:
                    waiter.turns.clear()  # of before it lost the turn: no room is to be made for it now
                if attempt.reserved:
                    await self._come_back(waiter, worker, refusal, pools)
                    return None
                continue
            waiter.answered = record is None
            return record
        return None

    def _attempt(self, waiter: Waiter, worker: WorkerRecord) -> Attempt:
        async def leave_the_other_lines() -> None:
            waiter.in_line.discard(worker.pool)
            await self._queue.step_out(waiter, set(waiter.in_line))

        return Attempt(waiter.wanted, worker, waiter.waiter_id, leave_the_other_lines)

    async def _come_back(
        self, waiter: Waiter, worker: WorkerRecord, refusal: KakeyaError, pools: Collection[str]
    ) -> None:
        """Stands again where it stood, after a worker has not taken it."""
        if isinstance(refusal, InvalidField):
            waiter.refused[worker.incarnation] = refusal
        else:
            # Not worth another try at once, and the place in the line is still its own.
            waiter.paused[worker.incarnation] = asyncio.get_running_loop().time() + TICK_SECONDS
        await self._queue.enter(waiter, pools, returning=True)
        waiter.wake()

    async def _workers(self, pools: Collection[str]) -> list[WorkerRecord]:
        return [worker for pool in sorted(pools) for worker in await self._worker_store.workers(pool)]

    async def _too_late(self, waiter: Waiter, pools: Collection[str]) -> KakeyaError:
        workers = [worker for worker in await self._workers(pools) if waiter.wanted.is_served_by(worker)]
        if not workers:
            return candidates.no_worker("the model any more")
        _check_possible(waiter, list(filter(waiter.wanted.fits, workers)))
        return refusals.queue_timed_out(self._queue_seconds)


def _check_possible(waiter: Waiter, workers: Sequence[WorkerRecord]) -> None:
    """Raises InvalidField: all of them have said that they cannot hold the session."""
    if workers and all(worker.incarnation in waiter.refused for worker in workers):
        raise waiter.refused[workers[0].incarnation]
