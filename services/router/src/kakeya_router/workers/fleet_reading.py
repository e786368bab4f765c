"""The runtime as Redis has it when metrics are read: a router whose metrics nobody reads has no work with them."""

import asyncio
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass

from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.fleet.pool_sizes import pool_sizes
from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.sessions.session_lists import SessionLists
from kakeya_router.workers.fleet_gauges import FleetGauges, Seen
from kakeya_shared.errors.tree import StoreUnavailable

# Prometheus waits for ten by default; a Redis that is slower than this counts as away.
_LOOK_SECONDS = 5.0


@dataclass(frozen=True)
class FleetReading:
    """Sets the gauges of the runtime.

    Attributes:
        calls: how many of this router's calls wait for a lane, and how many operations have theirs.
        has_tenants: callers have keys, and with them tenants.
    """

    _redis: RedisConnection
    _workers: WorkerStore
    _lists: SessionLists
    _gauges: FleetGauges
    calls: Callable[[], tuple[int, int]]
    has_tenants: bool

    def refresher(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        """What is to be called before each reading, in any thread but that of the router's loop."""

        def refresh() -> None:
            looking = asyncio.run_coroutine_threadsafe(self._look(), loop)
            try:
                seen = looking.result(_LOOK_SECONDS)
            except (StoreUnavailable, TimeoutError, CancelledError):
                looking.cancel()
                seen = None
            self._gauges.show(seen)
            self._gauges.show_calls(*self.calls())

        return refresh

    async def _look(self) -> Seen:
        """Raises StoreUnavailable."""
        workers = await self._workers.all_workers()
        pools = await self._workers.pools()
        sizes = await pool_sizes(self._redis, pools)
        usage = [await self._lists.usage(pool) for pool in pools] if self.has_tenants else []
        return Seen(workers, sizes, usage, await self._workers.now_ms())
