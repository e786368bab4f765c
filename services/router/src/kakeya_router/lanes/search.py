"""The one way to a lane: try the workers that can have the session, queue, try again when it is the first.

New sessions, forks and sessions that come back differ in what they do with a worker (`Seeker`), in nothing else.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Protocol, TypeVar

from kakeya_router.contract import refusals
from kakeya_router.lanes import candidates
from kakeya_router.lanes.admission_queue import AdmissionQueue
from kakeya_router.lanes.candidates import SourceChanged
from kakeya_router.lanes.idle_lanes import IdleLanes
from kakeya_router.lanes.waiter import Waiter
from kakeya_router.lanes.wanted import Wanted
from kakeya_router.metrics import RouterMetrics
from kakeya_router.store.session_record import Incarnation
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.workers import placement
from kakeya_router.workers.fleet import Fleet
from kakeya_router.workers.placement import Placement
from kakeya_shared.errors.tree import InvalidField, KakeyaError, NoCapacity, QuotaExceeded, SnapshotStoreUnavailable
from kakeya_shared.rpc import tracing

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# Quotas, as the scripts name them.
_OF_LANES = ("sessions", "reserved_bytes", "key_sessions")
# At a source that changes whenever a fork of it is about to be made, each look that finds it busy says so; and for a
# lane that another takes each time that room is made.
_MOST_LOOKS = 5


@dataclass(eq=False)
class Refused(Exception):
    """A worker has not taken the session.

    Attributes:
        error: what its client is told if no worker takes it.
        has_left: the session had a lane there for a moment, and so is out of the queue.
        is_overtaken: another waiter is the first there.
        is_away: the worker is gone, or drains, since it was listed.
    """

    error: KakeyaError
    _: KW_ONLY
    has_left: bool = False
    is_overtaken: bool = False
    is_away: bool = False


class Seeker(Protocol[T_co]):
    """What a session that needs a lane does with a worker; what it needs of one is in `Wanted`."""

    def none_able(self, wanted: Wanted, workers: Sequence[WorkerRecord]) -> KakeyaError:
        """What its client is told where none of the workers can have it. Raises KakeyaError: none ever will."""

    async def open_lane(
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


@dataclass(eq=False, slots=True)
class Search:
    """Finds lanes: it tries the workers in the order of the placement, queues, and tries again whenever it is woken.

    There is one search for all, so that a new session and one that comes back meet the same order and the same
    refusals. Called by `Sessions` for new ones and forks, by `Resuming` for those without a lane.

    Attributes:
        wait_seconds: how long a session queues; 0: not at all; None: for ever.
    """

    _fleet: Fleet
    _placement: Placement
    _queue: AdmissionQueue
    _idle_lanes: IdleLanes
    _metrics: RouterMetrics
    _: KW_ONLY
    wait_seconds: float | None

    async def lane(
        self,
        seeker: Seeker[T],
        wanted: Wanted,
        reserved_bytes: int,
        *,
        workers: Sequence[WorkerRecord] | None = None,
        left: Incarnation = Incarnation(""),
    ) -> T | None:
        """Finds the session a lane, at once or when it is the first in the queue.

        It stands in the queue of each pool that serves what is wanted now; a pool that begins to serve it later gets
        the calls that come later. Where its tenant has reached a quota of lanes, a disposable session of that one goes.

        Args:
            reserved_bytes: of the lane.
            workers: some of those pools, as they just were; None: none were looked at.
            left: the incarnation that it had its lane on until now, which is tried last.

        Returns:
            What `Seeker.open_lane` returns.

        Raises:
            InvalidField: no worker can hold it.
            NoWorker, NoCapacity: no worker takes it, and it does not wait.
            QueueFull, QueueTimedOut, QuotaExceeded, Draining, StoreUnavailable, and what the seeker raises
        """
        with tracing.part("placement"):
            while True:
                try:
                    return await self._lane(seeker, wanted, reserved_bytes, workers, left)
                except QuotaExceeded as error:
                    if not await self._gives_up_own(wanted, error.metadata.get("quota")):
                        raise
                    workers = None

    async def _gives_up_own(self, wanted: Wanted, quota: str | None) -> bool:
        """Whether the tenant has a lane less now."""
        if quota not in _OF_LANES:
            return False
        caller = wanted.caller
        key_id = caller.key_id if quota == "key_sessions" else None
        return await self._idle_lanes.give_up_own(caller.tenant, wanted.pools, wanted.source_id, key_id)

    async def _lane(
        self,
        seeker: Seeker[T],
        wanted: Wanted,
        reserved_bytes: int,
        workers: Sequence[WorkerRecord] | None,
        left: Incarnation,
    ) -> T | None:
        waiter = Waiter(wanted, reserved_bytes)
        waiter.paused[left] = 0.0
        workers = workers or await self._fleet.some(wanted.pools, wanted.incarnation)
        found = await self._try_all(seeker, waiter, workers)
        for _ in range(_MOST_LOOKS):
            if isinstance(found, SourceChanged):
                waiter.wanted = await seeker.renewed(waiter.wanted, is_stranded=False)
            elif isinstance(found, NoCapacity) and await self._makes_room(waiter.wanted):
                waiter.room_is_made()
            else:
                break
            found = await self._try_all(seeker, waiter)
        if not isinstance(found, KakeyaError):
            return found
        if self.wait_seconds == 0 or not (wanted.is_patient or isinstance(found, NoCapacity)):
            raise found
        began, got = time.monotonic(), "none"
        try:
            lane = await self._wait(seeker, waiter)
            got = "lane" if lane is not None else got
        finally:
            self._metrics.queue_wait_seconds.labels(got).observe(time.monotonic() - began)
        return lane

    async def _makes_room(self, wanted: Wanted) -> bool:
        """Whether a disposable session has made room, before anything waits for it. Another may take it first."""
        turns = {
            pool: [worker.worker_id for worker in self._fleet.workers(pool) if wanted.fits(worker)]
            for pool in wanted.pools
        }
        return await self._idle_lanes.make_room(wanted.caller.tenant, turns, wanted.source_id, only_disposable=True)

    async def _wait(self, seeker: Seeker[T], waiter: Waiter) -> T | None:
        loop = asyncio.get_running_loop()
        until = None if self.wait_seconds is None else loop.time() + self.wait_seconds
        async with self._queue.waiting(waiter):
            while True:
                try:
                    async with asyncio.timeout_at(until):
                        await waiter.woken()
                        if not waiter.answered:
                            await self._look_again(seeker, waiter)
                except TimeoutError:
                    raise await self._too_late(seeker, waiter) from None
                if waiter.answered:
                    return None
                found = await self._try_all(seeker, waiter)
                if not isinstance(found, KakeyaError):
                    return found
                self._queue.have_room_made(waiter)

    async def _look_again(self, seeker: Seeker[T], waiter: Waiter) -> None:
        """Where it has lost its place, or wants another worker by now, it queues again."""
        if waiter.displaced:
            pools, waiter.displaced = waiter.displaced, set()
            await self._queue.enter(waiter, pools)
        before = waiter.wanted
        waiter.wanted = now = await seeker.renewed(before, is_stranded=waiter.stranded)
        if (now.incarnation, now.snapshot_store) != (before.incarnation, before.snapshot_store):
            await self._queue.step_out(waiter)  # others have the turns that it had
            await self._queue.enter(waiter, now.pools)

    async def _try_all(
        self, seeker: Seeker[T], waiter: Waiter, workers: Sequence[WorkerRecord] | None = None
    ) -> T | KakeyaError | None:
        """Tries all workers with room, up to one where it loses its place in the queue; else says why there is none.

        Args:
            workers: that are known. Where none of them takes it, or None is given, all are looked at anew.
        """
        said: dict[Incarnation, KakeyaError] = {}
        while True:
            wanted = waiter.wanted
            is_anew = workers is None or not any(each.has_room and wanted.is_best_at(each) for each in workers)
            if workers is None or is_anew:
                workers = await self._fleet.some_anew(wanted.pools, wanted.incarnation)
            able = list(filter(wanted.fits, workers))
            if not able:
                return seeker.none_able(wanted, workers)
            if not wanted.is_patient:
                _check_possible(waiter, able)
            now, num_away = asyncio.get_running_loop().time(), 0
            said |= {worker.incarnation: candidates.no_capacity() for worker in able if not worker.has_room}
            said |= waiter.refused
            untried = [worker for worker in able if waiter.may_try(worker.incarnation, now)]
            order = placement.order_for(wanted.fingerprint, self._placement, untried)
            for worker in sorted(order, key=lambda worker: worker.incarnation in waiter.paused):
                try:
                    return await self._open_lane(seeker, waiter, worker)
                except Refused as refused:
                    if refused.is_away:  # which says nothing of the room that there is
                        num_away += 1
                    else:
                        said[worker.incarnation] = refused.error
                    if await self._is_back(waiter, worker, refused):
                        return refused.error
            if is_anew and (not order or num_away < len(order)):
                return candidates.verdict([said[worker.incarnation] for worker in able if worker.incarnation in said])
            workers = None  # by now there may be room, or no able worker at all

    async def _open_lane(self, seeker: Seeker[T], waiter: Waiter, worker: WorkerRecord) -> T | None:
        async def leave_the_other_queues() -> None:
            wait_seconds, now = asyncio.get_running_loop().time() - waiter.since, time.perf_counter()
            tracing.annotate(lane_wait_seconds=wait_seconds, worker_id=worker.worker_id)
            if waiter.tickets:  # it has queued
                tracing.past("admission", now - wait_seconds, now)
            waiter.has_left(worker.pool)
            await self._queue.step_out(waiter)

        lane = await seeker.open_lane(waiter.wanted, worker, waiter.id_in_queue, leave_the_other_queues)
        waiter.answered = lane is None
        return lane

    async def _is_back(self, waiter: Waiter, worker: WorkerRecord, refused: Refused) -> bool:
        """Writes it down; whether it had left the queue, and is back at its place now."""
        if refused.has_left or refused.is_overtaken:
            waiter.turns.clear()  # of before it was overtaken: no room is to be made for it now
        if isinstance(refused.error, InvalidField):
            waiter.refused[worker.incarnation] = refused.error
        elif refused.has_left and not isinstance(refused.error, SourceChanged):
            # Not worth another try at once, and then after all others.
            waiter.pause(worker.incarnation, is_full=isinstance(refused.error, NoCapacity))
            waiter.said = refused.error if isinstance(refused.error, SnapshotStoreUnavailable) else None
        if not (refused.has_left and waiter.tickets):
            return False
        await self._queue.enter(waiter, waiter.wanted.pools)
        waiter.wake()
        return True

    async def _too_late(self, seeker: Seeker[T], waiter: Waiter) -> KakeyaError:
        wanted = waiter.wanted
        workers = await self._fleet.some_anew(wanted.pools, wanted.incarnation)
        if not any(map(wanted.is_served_by, workers)):
            return seeker.none_able(wanted, workers)
        able = list(filter(wanted.fits, workers))
        _check_possible(waiter, able)
        if waiter.said is not None and any(worker.has_room for worker in able):
            return waiter.said  # it is not lanes that are wanting
        return candidates.no_capacity() if wanted.is_interrupted else refusals.queue_timed_out(self.wait_seconds or 0)


def _check_possible(waiter: Waiter, able: Sequence[WorkerRecord]) -> None:
    """Raises InvalidField: all of them have said that they cannot hold the session."""
    if able and all(worker.incarnation in waiter.refused for worker in able):
        raise waiter.refused[able[0].incarnation]
