"""A runtime in one process: a router and a worker on the same event loop, over real sockets and a real Redis.

What runs by itself must not be taken for a part of somebody's call. What goes by the clock (heartbeats, looks at the
workers, the reaper, renewals of leases) waits for an hour between two times, and so never comes. Some loops look for
work once a second whatever they are told: their tasks are named, so that they can be left out. Tokens are journaled and
acknowledged in groups by their number alone: how many groups a slow machine makes by the clock says nothing of the way.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import kakeya
from kakeya_router.operations import journal
from kakeya_router.program import Router
from kakeya_router.settings import RouterSettings
from kakeya_router.workers import answers
from kakeya_worker import program as worker_program
from kakeya_worker.settings import WorkerSettings
from tests.ports import free_port
from tests.random_checkpoint import save_random_checkpoint
from tests.redis_server import redis_server

_HOUR = 3600.0
_LOOK_SECONDS = 0.05
_SETTLE_SECONDS = 3.0  # the loops have begun, and looked for the first time, on a busy machine, too


@dataclass(frozen=True)
class OneProcess:
    """Serves.

    Attributes:
        address: of the router.
        background: the tasks that were there before any call: loops, and the servers' own.
    """

    address: str
    background: frozenset[asyncio.Task[Any]]


@asynccontextmanager
async def one_process(directory: Path) -> AsyncIterator[OneProcess]:
    """Serves a small random checkpoint, which is written to the directory."""
    model = save_random_checkpoint(directory / "random")
    with (
        redis_server() as redis,
        patch.object(journal, "_GROUP_SECONDS", _HOUR),
        patch.object(answers, "BATCH_SECONDS", _HOUR),
    ):
        router = RouterSettings(
            redis=redis.url,
            bind=f"127.0.0.1:{free_port()}",
            heartbeat_interval_seconds=_HOUR,
            worker_lease_seconds=2 * _HOUR,
            reap_interval_seconds=_HOUR,
            operation_lease_seconds=_HOUR,
        )
        worker = WorkerSettings(
            model=str(model), sink=4, window=64, lanes=4, threads=1, join=router.bind, cache_dir=directory
        )
        stop = asyncio.Event()
        async with Router(router):
            serving = asyncio.create_task(worker_program.serve(worker, stop))
            await _wait_until_served(router.bind, serving)
        # Another router on its address: one that looks at the workers when it starts, and not again for an hour.
        async with Router(router):
            await asyncio.sleep(_SETTLE_SECONDS)
            try:
                yield OneProcess(router.bind, frozenset(asyncio.all_tasks()) - {asyncio.current_task()})
            finally:
                stop.set()
                await serving


async def _wait_until_served(address: str, serving: "asyncio.Task[None]") -> None:
    """Raises what ended the worker."""
    async with kakeya.AsyncClient(address) as client:
        while not await client.list_models():
            if serving.done():
                serving.result()
            await asyncio.sleep(_LOOK_SECONDS)
