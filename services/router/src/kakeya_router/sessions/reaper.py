"""Enforces leases and time-outs: lapsed workers, lost sessions, expired sessions, vanished waiters."""

import asyncio

import structlog

from kakeya_router.sessions.sessions import Sessions
from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.sessions.queue_store import QueueStore
from kakeya_router.store.sessions.session_lists import SessionLists
from kakeya_router.workers.fleet import Fleet
from kakeya_router.workers.ledger_audit import LedgerAudit
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_router.workers.worker_sweep import WorkerSweep
from kakeya_shared.errors.tree import StoreUnavailable
from kakeya_shared.process.detached_tasks import DetachedTasks, unheard

_BATCH = 128
# Passes from one audit of the ledgers to the next.
_AUDIT_EVERY = 10

_log = structlog.get_logger()


class Reaper:
    """Each router has one; each claim is atomic in Redis, so several are harmless.

    Args:
        interval_seconds: between two passes.
        grace_seconds: nothing is reaped until Redis has answered for so long, for nobody could renew a lease
            while it did not.
    """

    def __init__(
        self,
        redis: RedisConnection,
        session_store: SessionLists,
        worker_store: WorkerStore,
        queue_store: QueueStore,
        sessions: Sessions,
        sweep: WorkerSweep,
        workers: WorkerClients,
        fleet: Fleet,
        tasks: DetachedTasks,
        *,
        interval_seconds: float,
        grace_seconds: float,
    ) -> None:
        self._redis = redis
        self._session_store = session_store
        self._worker_store = worker_store
        self._queue_store = queue_store
        self._sessions = sessions
        self._sweep = sweep
        self._workers = workers
        self._fleet = fleet
        self._tasks = tasks
        self._interval_seconds = interval_seconds
        self._grace_seconds = grace_seconds
        self._audit = LedgerAudit(worker_store)
        self._num_passes = 0

    async def run(self) -> None:
        """Reaps until it is cancelled."""
        while True:
            await asyncio.sleep(self._interval_seconds)
            try:
                await self._reap()
            except StoreUnavailable as error:
                _log.info("reaper waits for Redis", error=error.message)
            except Exception:  # whatever one pass stumbles over, the next must take place
                _log.exception("reaper pass failed")

    async def _reap(self) -> None:
        if not self._may_reap:
            return
        self._num_passes += 1
        for pool in await self._worker_store.pools():
            await self._drop_lapsed_workers(pool)
            for incarnation in await self._worker_store.lost(pool):
                await self._sweep.sweep(pool, incarnation)
            expired = await self._session_store.expired(pool, _BATCH)
            if not self._may_reap:
                return
            for record in expired:  # what a worker that hangs holds up must not hold up its own end
                unheard(self._tasks.start(self._sessions.expire(record)))
            await self._queue_store.forget_lapsed(pool)
            if self._num_passes % _AUDIT_EVERY == 0:
                await self._audit.audit(pool)
            await self._worker_store.forget_empty_pool(pool)
        await self._workers.retain({worker.address for worker in await self._worker_store.all_workers()})

    @property
    def _may_reap(self) -> bool:
        # Asked again after each answer: one that was long in coming may show leases as lapsed.
        return self._redis.answers_for(self._grace_seconds)

    async def _drop_lapsed_workers(self, pool: str) -> None:
        for worker in await self._worker_store.lapsed(pool, _BATCH):
            if not self._may_reap:
                return
            if await self._worker_store.drop(pool, worker.worker_id, worker.incarnation, lapsed_only=True):
                _log.info("worker lost", worker_id=worker.worker_id, incarnation=worker.incarnation)
                await self._fleet.look()  # so that whoever waits for it hears it at once
