"""Whether Redis answers decides whether this router serves."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_shared.errors.tree import StoreUnavailable

_log = structlog.get_logger()


class StoreWatch:
    """Keeps the router on the list of routers, which is also the probe: a write, as calls need it.

    Args:
        address: where this router is reached.
        set_serving: told of each change.
    """

    def __init__(
        self,
        store: WorkerStore,
        address: str,
        set_serving: Callable[[bool], Awaitable[None]],
        *,
        interval_seconds: float,
    ) -> None:
        self._store = store
        self._address = address
        self._set_serving = set_serving
        self._interval_seconds = interval_seconds
        self._serving: bool | None = None

    async def run(self) -> None:
        """Watches until it is cancelled."""
        while True:
            await self._become(await self._trouble())
            await asyncio.sleep(self._interval_seconds)

    async def _trouble(self) -> str:
        """Why Redis cannot be used; "" where it can."""
        try:
            await self._store.announce_router(self._address)
            if not self._serving:
                await self._look_at_policy()
        except StoreUnavailable as error:
            return error.message
        return ""

    async def _look_at_policy(self) -> None:
        """Raises StoreUnavailable."""
        policy = await self._store.eviction_policy()
        if policy:
            _log.warning(
                "Redis drops keys when its memory is full, and with them sessions; set maxmemory-policy noeviction",
                maxmemory_policy=policy,
            )

    async def _become(self, trouble: str) -> None:
        serving = not trouble
        if serving != self._serving:
            self._serving = serving
            await self._set_serving(serving)
            if serving:
                _log.info("Redis answers; serving")
            else:
                _log.warning("not serving", reason=trouble)
