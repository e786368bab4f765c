"""Removes what no session needs from the snapshot store: files of routers and workers that vanished in between."""

import asyncio

import grpc
import structlog

from kakeya_shared.errors.tree import KakeyaError
from kakeya_shared.process.endured_loop import endured_loop
from kakeya_worker.joining.registration import Registration
from kakeya_worker.joining.router_link import TokenError
from kakeya_worker.snapshots.snapshots import Snapshots

_log = structlog.get_logger()

_BATCH = 1024  # as many names as a router takes at once


class SnapshotSweep:
    """Looks at the store once in a while; each worker does, which is harmless.

    Args:
        interval_seconds: between two looks; what is younger than that is left alone.
    """

    def __init__(self, registration: Registration, snapshots: Snapshots, pool: str, *, interval_seconds: float) -> None:
        self._registration = registration
        self._snapshots = snapshots
        self._pool = pool
        self._interval_seconds = interval_seconds

    async def run(self) -> None:
        """Sweeps until it is cancelled."""
        await self._registration.joined.wait()
        await asyncio.sleep(self._interval_seconds)
        await endured_loop(
            "the sweep of the snapshot store",
            self._sweep,
            interval_seconds=self._interval_seconds,
            put_off_by=(grpc.aio.AioRpcError, KakeyaError, TokenError),
        )

    async def _sweep(self) -> None:
        names = await self._snapshots.old_files(self._pool, self._interval_seconds)
        for start in range(0, len(names), _BATCH):
            orphans = await self._registration.orphans(names[start : start + _BATCH])
            if orphans:
                await self._snapshots.remove(orphans)
                _log.info("snapshot files removed that no session needs", number=len(orphans))
