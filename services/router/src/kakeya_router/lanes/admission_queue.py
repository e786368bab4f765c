"""The queue on the side of one router: its waiters, who renews their leases, and who wakes them."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager

import structlog

from kakeya_router.access.callers import Caller
from kakeya_router.contract import refusals
from kakeya_router.lanes.idle_lanes import IdleLanes
from kakeya_router.lanes.waiter import Waiter
from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.outcomes import EnterLine
from kakeya_router.store.sessions.queue_store import Entry, FirstWaiter, QueueStore
from kakeya_shared.errors.tree import KakeyaError, StoreUnavailable
from kakeya_shared.process.detached_tasks import DetachedTasks, unheard

TICK_SECONDS = 1.0
LEASE_SECONDS = 3 * TICK_SECONDS
"""Two lost renewals do no harm; a vanished router's waiters hold the line up for so long."""

# Renewed by one script, which keeps all others from Redis while it runs.
_BATCH = 256

_log = structlog.get_logger()


class AdmissionQueue:
    """The waiters of this router.

    A turn is told by a message, and looked for at each tick: a lost message costs a second and never a session.

    Args:
        rooms: the pools that have room, as some router says; "": one may have been missed.
        idle_lanes: makes room for the first in the line; None: it waits like the others.
    """

    def __init__(
        self,
        store: QueueStore,
        worker_store: WorkerStore,
        tasks: DetachedTasks,
        *,
        rooms: Callable[[], AsyncGenerator[str, None]],
        idle_lanes: IdleLanes | None,
    ) -> None:
        self._store = store
        self._worker_store = worker_store
        self._tasks = tasks
        self._rooms = rooms
        self._idle_lanes = idle_lanes
        self._waiters: dict[str, Waiter] = {}
        self._asking: set[str] = set()
        self._to_ask: set[str] = set()
        self._closed = False

    @asynccontextmanager
    async def waiting(self, waiter: Waiter, pools: Iterable[str]) -> AsyncIterator[None]:
        """Stands in the lines of these pools; on the way out it leaves them, even when Redis is away: its lease
        lapses.

        Raises:
            QueueFull, QuotaExceeded, StoreUnavailable, Draining
        """
        if self._closed:
            raise refusals.draining()
        self._waiters[waiter.waiter_id] = waiter
        try:
            await self.enter(waiter, pools, returning=waiter.is_interrupted)
            yield
        finally:
            del self._waiters[waiter.waiter_id]
            if waiter.making_room is not None:
                waiter.making_room.cancel()
            self._tasks.start(self._leave(waiter))

    async def enter(self, waiter: Waiter, pools: Iterable[str], *, returning: bool = False) -> None:
        """Lines up where it stood, or at the end; raises as `waiting` when it stands in no line then.

        Args:
            returning: it lost its place by no fault of its own, and has it again also where the queue is full.
        """
        waiter.entering = self._tasks.start(self._enter(waiter, pools, returning))
        await asyncio.shield(waiter.entering)

    async def _enter(self, waiter: Waiter, pools: Iterable[str], returning: bool) -> None:
        refused: list[KakeyaError] = []
        for pool in sorted(pools):
            entry = await self._store.enter(pool, waiter.place(pool), waiter.wanted.limits, returning=returning)
            if entry.outcome is EnterLine.WAITING:
                waiter.tickets[pool] = entry.ticket
                waiter.in_line.add(pool)
                self._ask_soon(pool)
            else:
                refused.append(_refusal(entry, waiter.wanted.caller))
        if refused and not waiter.in_line:
            raise refused[0]

    async def re_enter(self, waiter: Waiter) -> None:
        """Lines up where it was displaced: in its old place where its lease lapsed, at the end if there is room where
        it made way for others. Raises as `enter`.
        """
        lapsed, evicted = waiter.displaced - waiter.evicted, waiter.evicted
        waiter.displaced, waiter.evicted = set(), set()
        for pool in evicted:
            waiter.tickets.pop(pool, None)
        await self.enter(waiter, lapsed, returning=True)
        await self.enter(waiter, evicted)

    async def enter_anew(self, waiter: Waiter, pools: Iterable[str]) -> None:
        """Lines up where it stood, for what it wants by now; others have the turns that it had. Raises as `enter`."""
        await self.step_out(waiter, pools)
        await self.enter(waiter, pools, returning=True)

    async def step_out(self, waiter: Waiter, pools: Iterable[str]) -> None:
        """Leaves these lines, maybe for a while: it keeps its tickets."""
        for pool in sorted(pools):
            waiter.in_line.discard(pool)
            await self._store.leave(pool, waiter.waiter_id)

    def have_room_made(self, waiter: Waiter) -> None:
        """While it goes on waiting: a snapshot store may hang for longer than the waiter has time."""
        if self._idle_lanes is None or waiter.is_making_room or waiter.is_awake or not waiter.turns:
            return
        turns, waiter.turns = waiter.turns, {}
        waiter.making_room = self._tasks.start(_make_room(waiter, self._idle_lanes, turns))
        unheard(waiter.making_room)

    def close(self) -> None:
        """Ends all waits, also those to come, with Draining."""
        self._closed = True
        for waiter in self._waiters.values():
            waiter.wake(refusals.draining())

    async def run(self) -> None:
        """Renews leases and looks whose turn it is, until it is cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            try:
                await self._renew()
            except StoreUnavailable as error:
                _log.info("the queue waits for Redis", error=error.message)
            except Exception:  # whatever one pass stumbles over, the next must take place
                _log.exception("queue pass failed")

    async def listen(self) -> None:
        """Looks whose turn it is when some router says that there is room, until it is cancelled."""
        while True:
            try:
                async with aclosing(self._rooms()) as rooms:
                    async for pool in rooms:
                        for each in [pool] if pool else self._pools():
                            self._ask_soon(each)
            except StoreUnavailable as error:
                _log.info("the queue's subscription broke off", error=error.message)
            except Exception:  # the ticks go on without it, and it must come back
                _log.exception("the queue's subscription failed")
            await asyncio.sleep(TICK_SECONDS)

    def _pools(self) -> set[str]:
        return {pool for waiter in self._waiters.values() for pool in waiter.in_line}

    async def _renew(self) -> None:
        by_pool: defaultdict[str, list[Waiter]] = defaultdict(list)
        for waiter in self._waiters.values():
            for pool in waiter.in_line:
                by_pool[pool].append(waiter)
        for pool, waiters in by_pool.items():
            for start in range(0, len(waiters), _BATCH):
                await self._renew_some(pool, waiters[start : start + _BATCH])
            await self._wake_stranded(pool, [waiter for waiter in waiters if waiter.wanted.incarnation])
            self._ask_soon(pool)

    async def _renew_some(self, pool: str, waiters: Sequence[Waiter]) -> None:
        renewal = await self._store.renew(
            pool, [(w.waiter_id, w.wanted.caller.tenant, w.wanted.request.request_id) for w in waiters]
        )
        displaced, evicted, answered = map(set, (renewal.displaced, renewal.evicted, renewal.answered))
        for waiter in waiters:
            if waiter.waiter_id in displaced | evicted and pool in waiter.in_line:
                waiter.in_line.discard(pool)
                waiter.displaced.add(pool)
                waiter.wake()
            if waiter.waiter_id in evicted:
                waiter.evicted.add(pool)
            if waiter.waiter_id in answered and waiter.wanted.request.request_id:
                waiter.answered = True
                waiter.wake()

    async def _wake_stranded(self, pool: str, forks: Sequence[Waiter]) -> None:
        """No turn comes at a worker that takes no sessions, and none is of use at one that the source has left."""
        if not forks:
            return
        taking = {worker.incarnation for worker in await self._worker_store.workers(pool) if not worker.draining}
        lanes = await self._store.incarnations(pool, {waiter.source_id for waiter in forks})
        for waiter in forks:
            waiter.stranded = waiter.wanted.incarnation not in taking & {lanes[waiter.source_id]}
            if waiter.stranded:
                waiter.wake()

    def _ask_soon(self, pool: str) -> None:
        """Asks whose turn it is; one question a pool at a time, and one more if there was a reason meanwhile."""
        if pool not in self._pools():
            return
        self._to_ask.add(pool)
        if pool not in self._asking:
            self._asking.add(pool)
            self._tasks.start(self._ask(pool))

    async def _ask(self, pool: str) -> None:
        try:
            while pool in self._to_ask:
                self._to_ask.discard(pool)
                workers = await self._worker_store.workers(pool)
                self._tell(pool, await self._store.turns(pool, [worker.worker_id for worker in workers]))
        except StoreUnavailable as error:
            _log.info("the queue waits for Redis", error=error.message)
        finally:
            self._asking.discard(pool)

    def _tell(self, pool: str, turns: Iterable[FirstWaiter]) -> None:
        for waiter in self._waiters.values():
            waiter.turns.pop(pool, None)
        for turn in turns:
            waiter_at_turn = self._waiters.get(turn.waiter_id)
            if waiter_at_turn is not None:
                if not turn.has_room:
                    waiter_at_turn.turns.setdefault(pool, set()).add(turn.worker_id)
                if turn.has_room or self._idle_lanes is not None:
                    waiter_at_turn.wake()

    async def _leave(self, waiter: Waiter) -> None:
        if waiter.entering is not None:
            await asyncio.gather(waiter.entering, return_exceptions=True)
        try:
            await self.step_out(waiter, waiter.in_line)
        except StoreUnavailable as error:
            _log.info("a waiter's lease lapses", error=error.message)


async def _make_room(waiter: Waiter, idle_lanes: IdleLanes, turns: Mapping[str, Collection[str]]) -> None:
    wanted = waiter.wanted
    spared = "" if wanted.source is None else wanted.source.session_id
    if await idle_lanes.make_room(wanted.caller.tenant, turns, spared=spared):
        waiter.paused.clear()  # what a worker said before its lane was closed is of no account
        waiter.wake()


def _refusal(entry: Entry, caller: Caller) -> KakeyaError:
    if entry.outcome is EnterLine.FULL:
        return refusals.queue_full()
    return refusals.quota_exceeded(entry.quota, caller.tenant, caller.key_id)
