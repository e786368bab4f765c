"""The queue on the side of one router: its waiters, who renews their leases, and who wakes them."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import assert_never

import structlog

from kakeya_router.contract import refusals
from kakeya_router.lanes.idle_lanes import IdleLanes
from kakeya_router.lanes.waiter import Waiter
from kakeya_router.store.outcomes import EnterQueue
from kakeya_router.store.session_record import PoolName, WorkerId
from kakeya_router.store.sessions.queue_store import FirstWaiter, QueueStore
from kakeya_router.workers.fleet import Fleet
from kakeya_shared.errors.tree import KakeyaError, StoreUnavailable
from kakeya_shared.process.detached_tasks import DetachedTasks, unheard
from kakeya_shared.process.endured_loop import endured_loop

TICK_SECONDS = 1.0
LEASE_SECONDS = 3 * TICK_SECONDS
"""Two lost renewals do no harm; a vanished router's waiters hold the queue up for so long."""

# Renewed by one script, which keeps all others from Redis while it runs.
_BATCH = 256

_log = structlog.get_logger()


@dataclass(eq=False, slots=True)
class AdmissionQueue:
    """The waiters of this router in the queue of each pool, which is in Redis and the same for all routers.

    `Search` enters and leaves it. Its two loops, started by `Router`, renew the waiters' leases and wake the first one
    at a worker. That there is room is told by a message, and looked for at each tick: a lost message costs a second
    and never a session.

    Attributes:
        rooms: the pools that have room, as some router says; "": one may have been missed.
        idle_lanes: makes room for the first in the queue; None: it waits like the others.
    """

    _store: QueueStore
    _fleet: Fleet
    _tasks: DetachedTasks
    _: KW_ONLY
    rooms: Callable[[], AsyncGenerator[str, None]]
    idle_lanes: IdleLanes | None
    _waiters: dict[str, Waiter] = field(default_factory=dict, init=False)
    _asking: set[PoolName] = field(default_factory=set, init=False)
    _to_ask: set[PoolName] = field(default_factory=set, init=False)
    _closed: bool = field(default=False, init=False)

    @property
    def num_waiting(self) -> int:
        """Calls of this router, those that are about to enter a queue or to try a worker included."""
        return len(self._waiters)

    @property
    def num_returning(self) -> int:
        """Of those the operations whose session has no lane."""
        return sum(waiter.wanted.is_patient for waiter in self._waiters.values())

    @asynccontextmanager
    async def waiting(self, waiter: Waiter) -> AsyncIterator[None]:
        """Stands in the queues of the pools that it wants; on the way out it leaves them, even when Redis is away: its
        lease lapses.

        Raises:
            QueueFull, QuotaExceeded, StoreUnavailable, Draining
        """
        if self._closed:
            raise refusals.draining()
        self._waiters[waiter.waiter_id] = waiter
        try:
            await self.enter(waiter, waiter.wanted.pools)
            yield
        finally:
            del self._waiters[waiter.waiter_id]
            if waiter.making_room is not None:
                waiter.making_room.cancel()
            self._tasks.start(self._leave(waiter))

    async def enter(self, waiter: Waiter, pools: Iterable[PoolName]) -> None:
        """Queues where it stood, also where the queue is full, and else at the end; raises as `waiting` when it stands
        in no queue then.
        """
        waiter.entering = self._tasks.start(self._enter(waiter, pools))
        await asyncio.shield(waiter.entering)

    async def _enter(self, waiter: Waiter, pools: Iterable[PoolName]) -> None:
        refused: list[KakeyaError] = []
        caller = waiter.wanted.caller
        for pool in sorted(pools):
            place = waiter.place(pool)
            is_returning = place.ticket != "" or waiter.wanted.is_interrupted
            entry = await self._store.enter(pool, place, waiter.wanted.limits, returning=is_returning)
            match entry.outcome:
                case EnterQueue.WAITING:
                    waiter.tickets[pool] = entry.ticket
                    waiter.queued_in.add(pool)
                    self._ask_soon(pool)
                case EnterQueue.FULL:
                    refused.append(refusals.queue_full())
                case EnterQueue.QUOTA:
                    refused.append(refusals.quota_exceeded(entry.quota, caller.tenant, caller.key_id))
                case never:
                    assert_never(never)
        if refused and not waiter.queued_in:
            raise refused[0]

    async def step_out(self, waiter: Waiter) -> None:
        """Leaves its queues, maybe for a while: it keeps its tickets."""
        for pool in sorted(waiter.queued_in):
            waiter.has_left(pool)
            await self._store.leave(pool, waiter.waiter_id)

    def have_room_made(self, waiter: Waiter) -> None:
        """While it goes on waiting: a snapshot store may hang for longer than the waiter has time."""
        is_under_way = waiter.making_room is not None and not waiter.making_room.done()
        if self.idle_lanes is None or is_under_way or waiter.awake.is_set() or not waiter.knows_its_turns:
            return
        turns = {pool: worker_ids for pool, worker_ids in waiter.turns.items() if worker_ids}
        waiter.turns = {}
        waiter.making_room = self._tasks.start(_make_room(waiter, self.idle_lanes, turns))
        unheard(waiter.making_room)

    def close(self) -> None:
        """Ends all waits, also those to come, with Draining."""
        self._closed = True
        for waiter in self._waiters.values():
            waiter.wake(refusals.draining())

    async def run(self) -> None:
        """Renews leases and looks who is the first, until it is cancelled."""
        await endured_loop(
            "the queue's tick", self._renew, interval_seconds=TICK_SECONDS, put_off_by=(StoreUnavailable,)
        )

    async def listen(self) -> None:
        """Looks who is the first when some router says that there is room, until it is cancelled."""
        await endured_loop("the queue's subscription", self._hear, interval_seconds=TICK_SECONDS, put_off_by=())

    async def _hear(self) -> None:
        try:
            async with aclosing(self.rooms()) as rooms:
                async for pool in rooms:
                    for each in [PoolName(pool)] if pool else self._pools():
                        self._ask_soon(each)
        except StoreUnavailable as error:  # after hours, say: that is told each time
            _log.info("the queue's subscription broke off", error=error.message)

    def _pools(self) -> set[PoolName]:
        return {pool for waiter in self._waiters.values() for pool in waiter.queued_in}

    async def _renew(self) -> None:
        by_pool: defaultdict[PoolName, list[Waiter]] = defaultdict(list)
        for waiter in self._waiters.values():
            for pool in waiter.queued_in:
                by_pool[pool].append(waiter)
        for pool, waiters in by_pool.items():
            for start in range(0, len(waiters), _BATCH):
                await self._renew_some(pool, waiters[start : start + _BATCH])
            if forks := [waiter for waiter in waiters if waiter.wanted.incarnation]:
                await self._wake_stranded(pool, forks)
            self._ask_soon(pool)

    async def _renew_some(self, pool: PoolName, waiters: Sequence[Waiter]) -> None:
        renewal = await self._store.renew(
            pool, [(w.waiter_id, w.wanted.caller.tenant, w.wanted.request.request_id) for w in waiters]
        )
        displaced, evicted, answered = map(set, (renewal.displaced, renewal.evicted, renewal.answered))
        for waiter in waiters:
            if waiter.waiter_id in displaced | evicted and pool in waiter.queued_in:
                waiter.has_left(pool)
                waiter.displaced.add(pool)
                if waiter.waiter_id in evicted:
                    waiter.tickets[pool] = ""
                waiter.wake()
            if waiter.waiter_id in answered and waiter.wanted.request.request_id:
                waiter.answered = True
                waiter.wake()

    async def _wake_stranded(self, pool: PoolName, forks: Sequence[Waiter]) -> None:
        """No turn comes at a worker that takes no sessions, and none is of use at one that the source has left."""
        taking = {worker.incarnation for worker in self._fleet.workers(pool) if not worker.draining}
        lanes = await self._store.incarnations(pool, {waiter.wanted.source_id for waiter in forks})
        for waiter in forks:
            waiter.stranded = waiter.wanted.incarnation not in taking & {lanes[waiter.wanted.source_id]}
            if waiter.stranded:
                waiter.wake()

    def _ask_soon(self, pool: PoolName) -> None:
        """Asks who is the first; one question a pool at a time, and one more if there was a reason meanwhile."""
        if pool not in self._pools():
            return
        self._to_ask.add(pool)
        if pool not in self._asking:
            self._asking.add(pool)
            self._tasks.start(self._ask(pool))

    async def _ask(self, pool: PoolName) -> None:
        try:
            while pool in self._to_ask:
                self._to_ask.discard(pool)
                await self._fleet.look()
                worker_ids = [worker.worker_id for worker in self._fleet.workers(pool)]
                self._tell(pool, await self._store.first_waiters(pool, worker_ids))
        except StoreUnavailable as error:
            _log.info("the queue waits for Redis", error=error.message)
        finally:
            self._asking.discard(pool)

    def _tell(self, pool: PoolName, turns: Iterable[FirstWaiter]) -> None:
        asked = {waiter.waiter_id: waiter for waiter in self._waiters.values() if pool in waiter.queued_in}
        for waiter in asked.values():
            waiter.turns[pool] = set()
        for turn in turns:
            if turn.waiter_id in asked:
                if turn.has_room:
                    asked[turn.waiter_id].wake()
                else:
                    asked[turn.waiter_id].turns[pool].add(turn.worker_id)
        for waiter in asked.values():
            self.have_room_made(waiter)  # the search is not woken before there is any

    async def _leave(self, waiter: Waiter) -> None:
        if waiter.entering is not None:
            await asyncio.gather(waiter.entering, return_exceptions=True)
        try:
            await self.step_out(waiter)
        except StoreUnavailable as error:
            _log.info("a waiter's lease lapses", error=error.message)


async def _make_room(waiter: Waiter, idle_lanes: IdleLanes, turns: Mapping[PoolName, Collection[WorkerId]]) -> None:
    if await idle_lanes.make_room(waiter.wanted.caller.tenant, turns, spared=waiter.wanted.source_id):
        waiter.room_is_made()
        waiter.wake()
