"""Enforces leases and time-outs: lapsed workers, lost, expired and idle sessions, vanished waiters."""

from dataclasses import KW_ONLY, dataclass, field

import structlog

from kakeya_router.metrics import RouterMetrics
from kakeya_router.sessions.keeping import Keeping
from kakeya_router.sessions.sessions import Sessions
from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.fleet.worker_store import Identity, WorkerStore
from kakeya_router.store.session_record import PoolName
from kakeya_router.store.sessions.queue_store import QueueStore
from kakeya_router.store.sessions.session_lists import SessionLists
from kakeya_router.workers.fleet import Fleet
from kakeya_router.workers.ledger_audit import LedgerAudit
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_router.workers.worker_sweep import WorkerSweep
from kakeya_shared.errors.tree import StoreUnavailable
from kakeya_shared.process.detached_tasks import DetachedTasks, unheard
from kakeya_shared.process.endured_loop import endured_loop

_BATCH = 128
# Passes from one audit of the ledgers to the next.
_AUDIT_EVERY = 10

_log = structlog.get_logger()


@dataclass(eq=False, slots=True)
class Reaper:
    """Ends what has outlived its lease or its time: workers, sessions, waiters; and audits the ledgers now and then.

    Each router runs one; each claim is one script in Redis, so that several at once are harmless. Started by `Router`.

    Attributes:
        interval_seconds: between two passes.
        grace_seconds: nothing is reaped until Redis has answered for so long, for nobody could renew a lease
            while it did not.
    """

    _redis: RedisConnection
    _session_store: SessionLists
    _worker_store: WorkerStore
    _queue_store: QueueStore
    _sessions: Sessions
    _keeping: Keeping
    _sweep: WorkerSweep
    _workers: WorkerClients
    _fleet: Fleet
    _audit: LedgerAudit
    _tasks: DetachedTasks
    _metrics: RouterMetrics
    _: KW_ONLY
    interval_seconds: float
    grace_seconds: float
    _num_passes: int = field(default=0, init=False)

    async def run(self) -> None:
        """Reaps until it is cancelled."""
        await endured_loop(
            "the reaper", self._reap, interval_seconds=self.interval_seconds, put_off_by=(StoreUnavailable,)
        )

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
            await self._keeping.park_due(pool)
            await self._keeping.close_surplus(pool)
            await self._queue_store.forget_lapsed(pool)
            if self._num_passes % _AUDIT_EVERY == 0:
                await self._audit.audit(pool)
            await self._worker_store.forget_empty_pool(pool)
        await self._workers.retain()

    @property
    def _may_reap(self) -> bool:
        # Asked again after each answer: one that was long in coming may show leases as lapsed.
        return self._redis.answers_for(self.grace_seconds)

    async def _drop_lapsed_workers(self, pool: PoolName) -> None:
        for worker in await self._worker_store.lapsed(pool, _BATCH):
            if not self._may_reap:
                return
            if await self._worker_store.drop(Identity(pool, worker.worker_id, worker.incarnation), lapsed_only=True):
                self._metrics.lost_workers.inc()
                _log.info("worker lost", worker_id=worker.worker_id, incarnation=worker.incarnation)
                await self._fleet.look()  # so that a call that waits for it hears it at once
