"""Whether Redis answers decides whether this router serves."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field

import structlog

from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.layout import UnknownLayout
from kakeya_router.store.self_check import check_rights, faults
from kakeya_shared.errors.tree import StoreUnavailable
from kakeya_shared.process.endured_loop import endured_loop

_log = structlog.get_logger()


@dataclass(eq=False)
class StoreWatch:
    """Keeps the router on the list of routers, which is also the probe: a write, as calls need it.

    Args:
        address: where this router is reached.
        set_serving: told of each change.
        announce: what else is to be said of this router, to those that run.

    What ends the service is told once, however its text goes on to change.
    """

    _redis: RedisConnection
    _store: WorkerStore
    _address: str
    _set_serving: Callable[[bool], Awaitable[None]]
    _announce: Callable[[Sequence[str]], Awaitable[None]]
    _: KW_ONLY
    interval_seconds: float
    _told: type[Exception | None] | None = field(default=None, init=False)  # NoneType: that Redis answers

    async def run(self) -> None:
        """Watches until it is cancelled."""
        await endured_loop("watching Redis", self._look, interval_seconds=self.interval_seconds, put_off_by=())

    async def _look(self) -> None:
        trouble = await self._trouble()
        if self._told is type(trouble):
            return
        await self._set_serving(trouble is None)
        self._told = type(trouble)
        if trouble is None:
            _log.info("Redis answers; serving")
        else:
            _log.warning("not serving", reason=str(trouble))

    async def _trouble(self) -> Exception | None:
        """Why Redis cannot be used; None: it can."""
        is_new = self._told is not type(None)
        try:
            if is_new:
                await self._redis.claim_layout()
            await self._redis.follow()
            await self._announce(await self._store.announce_router(self._address))
            if is_new:
                await self._check()
        except (StoreUnavailable, UnknownLayout) as error:
            return error
        return None

    async def _check(self) -> None:
        """Raises StoreUnavailable."""
        await check_rights(self._redis)
        for fault in await faults(self._redis):
            _log.warning("Redis serves, and may lose sessions", reason=fault)
