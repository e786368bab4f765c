"""The workers as this router saw them last."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.session_record import SessionRecord
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_shared.errors.tree import StoreUnavailable

_log = structlog.get_logger()


class Fleet:
    """Looks at the registered workers once in a while.

    Args:
        on_look: told the incarnations that are alive, each time Redis has answered.
        on_addresses: told then where they are.
    """

    def __init__(
        self,
        store: WorkerStore,
        on_look: Callable[[frozenset[str]], None],
        on_addresses: Callable[[frozenset[str]], None] = lambda addresses: None,
        *,
        interval_seconds: float,
    ) -> None:
        self._store = store
        self._on_look = on_look
        self._on_addresses = on_addresses
        self._interval_seconds = interval_seconds
        self._by_incarnation: dict[str, WorkerRecord] = {}

    def worker(self, incarnation: str) -> WorkerRecord | None:
        """None where there is none, or a new one that was not seen yet."""
        return self._by_incarnation.get(incarnation)

    def with_store(self, pool: str, snapshot_store: str) -> Sequence[WorkerRecord]:
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
        while True:
            try:
                await self.look()
            except StoreUnavailable as error:
                _log.debug("the workers cannot be seen", error=error.message)
            except Exception:  # whatever one look stumbles over, the next must take place
                _log.exception("looking at the workers failed")
            await asyncio.sleep(self._interval_seconds)

    async def look(self) -> None:
        """Sees the workers as they are now; raises StoreUnavailable."""
        workers = await self._store.all_workers()
        self._by_incarnation = {worker.incarnation: worker for worker in workers}
        self._on_look(frozenset(self._by_incarnation))
        self._on_addresses(frozenset(worker.address for worker in workers))
