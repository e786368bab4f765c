"""Reads what runs, as long as there are viewers.

Once everything is read, a page at a time; then what changes. That a session is another one now is told by a message of
the script that changed it, whichever router ran that. The tokens of a busy one are not told, so those are read at each
tick. Workers are those that the router knows anyway. So a tick is O(changes).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence, Set
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field, replace

from kakeya_router.live.views import NOT_LATE, FleetSums, Key, PoolQueue, Thing
from kakeya_router.store.session_record import PoolName, SessionId
from kakeya_router.store.sessions.watch_store import PoolView, WatchStore
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.workers.fleet import Fleet
from kakeya_shared.process.bulletin import Bulletin, cancelled

Changes = Callable[[], AsyncGenerator[str, None]]
"""Ids of sessions that have changed, from now on; "" first, once none is missed."""


@dataclass(eq=False)
class Sampling:
    """Keeps a bulletin: sessions by id, workers by incarnation, queues by pool, and the sums.

    Attributes:
        late_ms: a worker whose last heartbeat is as old is shown as late; the heartbeats of others are no news.
        at_ms: as of when, by Redis's clock.
    """

    _store: WatchStore
    _fleet: Fleet
    _changes: Changes
    _bulletin: Bulletin[Key, Thing]
    _: KW_ONLY
    late_ms: int
    tick_seconds: float
    at_ms: int = field(default=0, init=False)
    _told: set[SessionId] = field(default_factory=set, init=False)
    _busy: set[SessionId] = field(default_factory=set, init=False)
    _names: dict[str, Set[str]] = field(default_factory=dict, init=False)

    async def run(self) -> None:
        """Reads until it is cancelled; raises StoreUnavailable, after which something may have been missed."""
        async with aclosing(self._changes()) as changes:
            await anext(changes)
            async with _Ended(asyncio.create_task(self._hear(changes))) as hearing:
                await self._read_all()
                while not hearing.done():
                    await self._tick()
                    self._bulletin.publish()
                    await asyncio.wait([hearing], timeout=self.tick_seconds)
                await hearing

    async def _hear(self, changes: AsyncGenerator[str, None]) -> None:
        async for session_id in changes:
            self._told.add(SessionId(session_id))

    async def _read_all(self) -> None:
        await self._fleet.look()
        pools, _ = await self._store.pools()
        for pool in pools:
            cursor = 0
            while True:
                found, cursor = await self._store.session_ids(pool, cursor)
                await self._read(found)
                if not cursor:
                    break

    async def _tick(self) -> None:
        told, self._told = self._told, set()
        await self._read(told | self._busy)
        pools, self.at_ms = await self._store.pools()
        workers = self._fleet.workers()
        self._show("worker", {worker.incarnation: _shown(worker, self.at_ms, self.late_ms) for worker in workers})
        self._show("queue", {pool: PoolQueue.of(pool, view) for pool, view in pools.items()})
        self._show("fleet", {"": _sums(workers, pools)})

    async def _read(self, session_ids: Collection[SessionId]) -> None:
        found = {session.session_id: session for session in await self._store.sessions(session_ids)}
        for session_id, session in found.items():
            self._bulletin.log.put(("session", session_id), session)
        for session_id in {*session_ids} - found.keys():
            self._bulletin.log.remove(("session", session_id))
        self._busy.difference_update(session_ids)
        self._busy.update(session.session_id for session in found.values() if session.busy)

    def _show(self, kind: str, things: Mapping[str, Thing]) -> None:
        """All of a kind, of which there are few."""
        for gone in self._names.get(kind, set()) - things.keys():
            self._bulletin.log.remove((kind, gone))
        for name, thing in things.items():
            self._bulletin.log.put((kind, name), thing)
        self._names[kind] = things.keys()


def _shown(worker: WorkerRecord, now_ms: int, late_ms: int) -> WorkerRecord:
    """Without what changes with each heartbeat."""
    is_late = now_ms - worker.heartbeat_ms > late_ms
    return replace(worker, heartbeat_number=0, heartbeat_ms=worker.heartbeat_ms if is_late else NOT_LATE)


def _sums(workers: Sequence[WorkerRecord], pools: Mapping[PoolName, PoolView]) -> FleetSums:
    return FleetSums(
        num_workers=len(workers),
        slab_bytes=sum(worker.slab_bytes for worker in workers),
        reserved_bytes=sum(max(0, worker.reserved_bytes) for worker in workers),
        kv_live_bytes=sum(max(0, worker.kv_live_bytes) for worker in workers),
        num_lanes=sum(worker.num_lanes for worker in workers),
        num_lanes_held=sum(max(0, worker.num_sessions) for worker in workers),
        num_sessions=sum(view.num_sessions for view in pools.values()),
        num_waiting=sum(view.num_waiting for view in pools.values()),
    )


@dataclass(frozen=True, slots=True)
class _Ended:
    """A task that has ended when it is left."""

    task: asyncio.Task[None]

    async def __aenter__(self) -> asyncio.Task[None]:
        return self.task

    async def __aexit__(self, *_error: object) -> None:
        await cancelled(self.task)
