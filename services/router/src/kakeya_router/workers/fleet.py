"""The workers as this router saw them last."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

from kakeya_router.contract import refusals
from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.session_record import Features, Incarnation, PoolName, SessionRecord
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_shared.errors.tree import StoreUnavailable
from kakeya_shared.process.endured_loop import endured_loop


@dataclass(eq=False)
class Fleet:
    """The registered workers, read from Redis once in a while, so that no call has to.

    A worker that has joined since is not there yet: `looked_up` reads at once. Parking, snapshots and rewinds ask it.

    Attributes:
        on_addresses: told after each look where the workers are.
        on_look: told then which incarnations are alive; set once what has to hear it is there.
    """

    _store: WorkerStore
    on_addresses: Callable[[frozenset[str]], None] = lambda addresses: None
    _: KW_ONLY
    interval_seconds: float
    on_look: Callable[[frozenset[Incarnation]], None] = lambda incarnations: None
    _by_incarnation: dict[Incarnation, WorkerRecord] = field(default_factory=dict, init=False)

    def worker(self, incarnation: Incarnation) -> WorkerRecord | None:
        """None where there is none, or a new one that was not seen yet."""
        return self._by_incarnation.get(incarnation)

    def workers(self) -> Sequence[WorkerRecord]:
        """All of them, as they were seen last."""
        return [*self._by_incarnation.values()]

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
        """Sees the workers as they are now; raises StoreUnavailable."""
        workers = await self._store.all_workers()
        self._by_incarnation = {worker.incarnation: worker for worker in workers}
        self.on_look(frozenset(self._by_incarnation))
        self.on_addresses(frozenset(worker.address for worker in workers))
