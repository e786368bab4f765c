"""The one way to a lane: try the workers that can have the session, queue, try again when it is its turn.

New sessions, forks and sessions that come back differ in what they do with a worker (`Seeker.take`), in nothing else.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from kakeya_router.contract import refusals
from kakeya_router.lanes import candidates
from kakeya_router.lanes.admission_queue import TICK_SECONDS, AdmissionQueue
from kakeya_router.lanes.waiter import Waiter
from kakeya_router.lanes.wanted import Wanted
from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.workers import placement
from kakeya_router.workers.placement import Placement
from kakeya_shared.errors.tree import InvalidField, KakeyaError, NoCapacity

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Refused(Exception):
    """A worker has not taken the session.

    Attributes:
        error: what its client is told if nobody takes it.
        has_left: the session had a lane there for a moment, and so is out of the queue.
        is_overtaken: somebody else has the turn there.
        is_away: the worker is gone, or being emptied, since it was listed.
    """

    def __init__(
        self, error: KakeyaError, *, has_left: bool = False, is_overtaken: bool = False, is_away: bool = False
    ) -> None:
        super().__init__(error.message)
        self.error = error
        self.has_left = has_left
        self.is_overtaken = is_overtaken
        self.is_away = is_away


class Seeker(Protocol[T_co]):
    """A session that needs a lane.

    Attributes:
        is_interrupted: an operation is in the middle of something with it: it comes before all who begin.
        is_patient: it also waits where nobody can have it now, but may later.
    """

    is_interrupted: bool
    is_patient: bool

    def able(self, wanted: Wanted, workers: Sequence[WorkerRecord]) -> Sequence[WorkerRecord]:
        """Those of the workers that can have it, if they have room. Raises KakeyaError: nobody ever will."""

    def is_served(self, wanted: Wanted, workers: Sequence[WorkerRecord]) -> bool:
        """Whether it is worth waiting: some worker can have it, or may once what it branches off from is there."""

    def none_able(self) -> KakeyaError:
        """What its client is told where there is none."""

    async def take(
        self, wanted: Wanted, worker: WorkerRecord, waiter_id: str, when_reserved: Callable[[], Awaitable[None]]
    ) -> T_co | None:
        """Opens its lane there; None: it is not needed any more. Raises Refused, and what ends the search.

        Args:
            waiter_id: that in the queue, INTERRUPTED or empty: it does not stand there.
            when_reserved: awaited once it has left the queue, before the worker is called.
        """

    async def renewed(self, wanted: Wanted, *, is_stranded: bool) -> Wanted:
        """What is wanted by now; raises what ends the search.

        Args:
            is_stranded: see `Waiter`.
        """


@dataclass(frozen=True, slots=True)
class _Found(Generic[T]):
    lane: T | None


class Search:
    """Finds lanes; called where sessions are created, and where one that has lost its lane is used.

    Args:
        queue: where those wait who find no room; None: nobody waits.
        wait_seconds: how long; None: for ever.
    """

    def __init__(
        self,
        worker_store: WorkerStore,
        placement: Placement,
        queue: AdmissionQueue | None,
        *,
        wait_seconds: float | None,
    ) -> None:
        self._worker_store = worker_store
        self._placement = placement
        self._queue = queue
        self._wait_seconds = wait_seconds

    async def lane(
        self,
        seeker: Seeker[T],
        wanted: Wanted,
        reserved_bytes: int,
        *,
        workers: Sequence[WorkerRecord] | None = None,
        left: str = "",
    ) -> T | None:
        """Finds the session a lane, at once or when it is its turn.

        It stands in the queue of each pool that serves what is wanted now; a pool that begins to serve it later gets
        the calls that come later.

        Args:
            reserved_bytes: of the lane.
            workers: of those pools, as just listed; None: they are not.
            left: the incarnation that it had its lane on until now, which is tried last.

        Returns:
            What `Seeker.take` returns.

        Raises:
            InvalidField: no worker can hold it.
            NoWorker, NoCapacity: nobody has it, and it does not wait.
            QueueFull, QueueTimedOut, QuotaExceeded, Draining, StoreUnavailable, and what the seeker raises
        """
        waiter = Waiter(wanted, reserved_bytes, is_interrupted=seeker.is_interrupted)
        waiter.shunned.add(left)
        found = await self._try_all(seeker, waiter, workers or await self._workers(wanted.pools))
        if isinstance(found, _Found):
            return found.lane
        if self._queue is None or not (seeker.is_patient or isinstance(found, NoCapacity)):
            raise found
        return await self._wait(self._queue, seeker, waiter)

    async def _wait(self, queue: AdmissionQueue, seeker: Seeker[T], waiter: Waiter) -> T | None:
        loop, pools = asyncio.get_running_loop(), waiter.wanted.pools
        until = None if self._wait_seconds is None else loop.time() + self._wait_seconds
        async with queue.waiting(waiter, pools):
            while True:
                try:
                    async with asyncio.timeout_at(until):
                        await waiter.woken()
                        if not waiter.answered:
                            await self._look_again(queue, seeker, waiter)
                except TimeoutError:
                    raise await self._too_late(seeker, waiter) from None
                if waiter.answered:
                    return None
                found = await self._try_all(seeker, waiter, await self._workers(waiter.wanted.pools))
                if isinstance(found, _Found):
                    return found.lane
                queue.have_room_made(waiter)

    async def _look_again(self, queue: AdmissionQueue, seeker: Seeker[T], waiter: Waiter) -> None:
        """Where it has lost its place, or wants another worker by now, it lines up again."""
        if waiter.displaced:
            await queue.re_enter(waiter)
        before = waiter.wanted
        waiter.wanted = now = await seeker.renewed(before, is_stranded=waiter.stranded)
        if (now.incarnation, now.snapshot_store) != (before.incarnation, before.snapshot_store):
            await queue.enter_anew(waiter, before.pools)

    async def _try_all(
        self, seeker: Seeker[T], waiter: Waiter, workers: Sequence[WorkerRecord]
    ) -> _Found[T] | KakeyaError:
        """Tries all workers with room, up to one where it loses its place in the queue; else says why there is none."""
        while True:
            able = seeker.able(waiter.wanted, workers)
            if not able:
                return seeker.none_able()
            if not seeker.is_patient:
                _check_possible(waiter, able)
            now, num_away = asyncio.get_running_loop().time(), 0
            full = {worker.incarnation: candidates.no_capacity() for worker in able if not worker.has_room}
            said: dict[str, KakeyaError] = {**full, **waiter.refused}
            untried = [worker for worker in able if waiter.may_try(worker.incarnation, now)]
            order = placement.order_for(waiter.wanted.fingerprint, self._placement, untried)
            for worker in sorted(order, key=lambda worker: worker.incarnation in waiter.shunned):
                try:
                    return _Found(await self._take(seeker, waiter, worker))
                except Refused as refused:
                    said[worker.incarnation] = refused.error
                    num_away += refused.is_away
                    if await self._is_back(waiter, worker, refused):
                        return refused.error
            if not order or num_away < len(order):
                return candidates.verdict([said[worker.incarnation] for worker in able if worker.incarnation in said])
            # Since they were listed: whether there is room, or anybody able at all, is to be seen.
            workers = await self._workers(waiter.wanted.pools)

    async def _take(self, seeker: Seeker[T], waiter: Waiter, worker: WorkerRecord) -> T | None:
        async def leave_the_other_lines() -> None:
            waiter.in_line.discard(worker.pool)
            if self._queue is not None:
                await self._queue.step_out(waiter, set(waiter.in_line))

        waiter_id = waiter.waiter_id if waiter.tickets else waiter.newcomer_id
        lane = await seeker.take(waiter.wanted, worker, waiter_id, leave_the_other_lines)
        waiter.answered = lane is None
        return lane

    async def _is_back(self, waiter: Waiter, worker: WorkerRecord, refused: Refused) -> bool:
        """Takes note; whether it had its turn, and is back at its place in the queue now."""
        if refused.has_left or refused.is_overtaken:
            waiter.turns.clear()  # of before it lost the turn: no room is to be made for it now
        if isinstance(refused.error, InvalidField):
            waiter.refused[worker.incarnation] = refused.error
        elif refused.has_left:
            waiter.shun(worker.incarnation, asyncio.get_running_loop().time() + TICK_SECONDS)
        if self._queue is None or not (refused.has_left and waiter.tickets):
            return False
        await self._queue.enter(waiter, waiter.wanted.pools, returning=True)
        waiter.wake()
        return True

    async def _workers(self, pools: Collection[str]) -> list[WorkerRecord]:
        return [worker for pool in sorted(pools) for worker in await self._worker_store.workers(pool)]

    async def _too_late(self, seeker: Seeker[T], waiter: Waiter) -> KakeyaError:
        workers = await self._workers(waiter.wanted.pools)
        if not seeker.is_served(waiter.wanted, workers):
            return seeker.none_able()
        _check_possible(waiter, seeker.able(waiter.wanted, workers))
        return candidates.no_capacity() if seeker.is_interrupted else refusals.queue_timed_out(self._wait_seconds or 0)


def _check_possible(waiter: Waiter, able: Sequence[WorkerRecord]) -> None:
    """Raises InvalidField: all of them have said that they cannot hold the session."""
    if able and all(worker.incarnation in waiter.refused for worker in able):
        raise waiter.refused[able[0].incarnation]
