"""The workers as this router saw them last: its one reader of them, and what places sessions on them."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import NamedTuple

from kakeya_router.contract import refusals
from kakeya_router.store.fleet.fleet_store import FleetStore
from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.session_record import Features, Incarnation, PoolName, SessionRecord
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.workers.placement import Some
from kakeya_shared.errors.tree import StoreUnavailable
from kakeya_shared.process.detached_tasks import DetachedTasks
from kakeya_shared.process.endured_loop import endured_loop

# So many times as long as a look takes there is none after it: with thousands of workers, too, they take a fifth of the
# router's time. But where Redis is slow, nobody waits for long.
_PAUSE_OF_LOOK, _LONGEST_PAUSE_SECONDS = 4.0, 0.25


class _Kind(NamedTuple):
    """What placing asks of a worker, beside its room: of equal ones any will do."""

    pool: PoolName
    model: str
    fingerprint: str
    model_digest: str
    snapshot_store: str
    features: str
    sink: int
    window: int
    lane_bytes: int
    vocab_size: int

    @classmethod
    def of(cls, worker: WorkerRecord) -> "_Kind":
        return cls(*(getattr(worker, name) for name in cls._fields))


@dataclass(eq=False)
class Fleet:
    """The registered workers, read from Redis once in a while, so that no call has to read all of them.

    A worker that has joined since is not there yet. `some` is for placing: O(1) in workers, and as they are now. A call
    that finds none then has it `look`, and is refused or waits only after that.

    Attributes:
        on_workers: told after each look which workers there are, by their addresses.
        on_look: told then which incarnations are alive; set once what has to hear it is there.
    """

    _store: WorkerStore
    _reader: FleetStore
    _tasks: DetachedTasks
    _some: Some
    on_workers: Callable[[Mapping[str, WorkerRecord]], None] = lambda workers: None
    _: KW_ONLY
    interval_seconds: float
    on_look: Callable[[frozenset[Incarnation]], None] = lambda incarnations: None
    _by_incarnation: dict[Incarnation, WorkerRecord] = field(default_factory=dict, init=False)
    _kinds: dict[_Kind, list[WorkerRecord]] = field(default_factory=dict, init=False)  # those with room, if any has
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _next_look: asyncio.Task[None] | None = field(default=None, init=False)
    _pause_until: float = field(default=0.0, init=False)

    def worker(self, incarnation: Incarnation) -> WorkerRecord | None:
        """None where there is none, or a new one that was not seen yet."""
        return self._by_incarnation.get(incarnation)

    def workers(self, pool: PoolName | None = None) -> Sequence[WorkerRecord]:
        """All of them, or those of a pool, as they were seen last, by pool and id."""
        return [worker for worker in self._by_incarnation.values() if pool in (None, worker.pool)]

    async def some(
        self, pools: Collection[PoolName] | None = None, also: Incarnation = Incarnation(""), model: str = ""
    ) -> list[WorkerRecord]:
        """Some workers of each kind, as they are now: those with room on which a session may be placed, and where there
        are none, some without. Raises StoreUnavailable.

        Args:
            pools: of which they are; None: all.
            also: one that is to be among them.
            model: that they serve, if any does; empty: whichever.
        """
        if not self._kinds:
            await self.look()
        chosen = {worker.incarnation: worker for worker in self._chosen(pools, model)}
        if (named := self.worker(also)) is not None:
            chosen[also] = named
        return await self._reader.latest(chosen.values())

    async def some_anew(
        self, pools: Collection[PoolName] | None, also: Incarnation, model: str = ""
    ) -> list[WorkerRecord]:
        """As `some`, of all that there are now."""
        await self.look()
        return await self.some(pools, also, model)

    def _chosen(self, pools: Collection[PoolName] | None, model: str) -> Iterable[WorkerRecord]:
        kinds = {kind: of for kind, of in self._kinds.items() if pools is None or kind.pool in pools}
        of_model = [of for kind, of in kinds.items() if kind.model == model]
        for workers in of_model or kinds.values():
            yield from self._some(workers)

    async def looked_up(self, incarnation: Incarnation) -> WorkerRecord | None:
        """None where there is none; raises StoreUnavailable."""
        if incarnation not in self._by_incarnation:
            await self.look()
        return self.worker(incarnation)

    async def check_features(self, record: SessionRecord, features: Features) -> None:
        """Raises NoWorker, which names them: the worker that holds the session lacks some. Raises StoreUnavailable.

        The session stays where it is: what it holds would have to be read or computed anew, which a client does not
        expect of one call. Once it is parked, the next call that needs a feature takes it to a worker that has it.
        """
        worker = await self.holder(record, features)
        if worker is not None and (lacking := worker.lacks(features)):
            raise refusals.no_feature(lacking, "the worker that holds the session")

    async def holder(self, record: SessionRecord, features: Features) -> WorkerRecord | None:
        """The worker that holds the session; where it lacked features, as it is now. Raises StoreUnavailable."""
        worker = self.worker(record.incarnation)
        if worker is None or worker.lacks(features):  # it may have joined just now, or said more since
            worker = await self._store.worker(record.pool, record.worker_id)
        return worker if worker is not None and worker.incarnation == record.incarnation else None

    def with_store(self, pool: PoolName, snapshot_store: str) -> Sequence[WorkerRecord]:
        """Workers of a pool that read this snapshot store."""
        return [
            worker
            for worker in self._by_incarnation.values()
            if worker.pool == pool and worker.snapshot_store == snapshot_store
        ]

    def readable(self, record: SessionRecord) -> SessionRecord:
        """The session without the snapshots from which no worker could have it."""

        def has_reader(snapshot_store: str) -> bool:
            workers = self.with_store(record.pool, snapshot_store)
            return any(worker.can_hold(record) and not worker.draining for worker in workers)

        return replace(
            record,
            snapshots=record.snapshots if has_reader(record.snapshot_store) else "",
            inherited=record.inherited if has_reader(record.inherited_store) else "",
        )

    async def run(self) -> None:
        """Looks until it is cancelled."""
        await endured_loop(
            "looking at the workers",
            self.look,
            interval_seconds=self.interval_seconds,
            put_off_by=(StoreUnavailable,),
        )

    async def look(self) -> None:
        """Sees the workers as they are now; raises StoreUnavailable. Who asks while a look goes on shares the next."""
        await asyncio.shield(self.look_soon())

    def look_soon(self) -> asyncio.Task[None]:
        """The next look, for which nobody needs to wait."""
        if self._next_look is None:
            self._next_look = self._tasks.start(self._look())
            self._next_look.add_done_callback(lambda look: look.cancelled() or look.exception())
        return self._next_look

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        async with self._looking:
            await asyncio.sleep(self._pause_until - loop.time())
            self._next_look, began = None, loop.time()
            self._see(await self._reader.workers())
            self._pause_until = loop.time() + min(_PAUSE_OF_LOOK * (loop.time() - began), _LONGEST_PAUSE_SECONDS)

    def _see(self, workers: Sequence[WorkerRecord]) -> None:
        self._by_incarnation = {worker.incarnation: worker for worker in workers}
        kinds: dict[_Kind, list[WorkerRecord]] = {}
        for worker in workers:
            kinds.setdefault(_Kind.of(worker), []).append(worker)
        self._kinds = {kind: [each for each in of if each.has_room] or of for kind, of in kinds.items()}
        self.on_look(frozenset(self._by_incarnation))
        self.on_workers({worker.address: worker for worker in workers})
