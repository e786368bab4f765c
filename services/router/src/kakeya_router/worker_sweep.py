"""What is left to do when a worker is gone: its sessions are marked LOST, a batch at a time."""

import structlog

from kakeya_router.store.session_store import SessionStore
from kakeya_router.store.worker_store import WorkerStore

_BATCH = 128

_log = structlog.get_logger()


class WorkerSweep:
    """Several routers may sweep the same incarnation at once.

    Args:
        lost_retention_seconds: how long a lost session's record answers.
    """

    def __init__(self, sessions: SessionStore, workers: WorkerStore, lost_retention_seconds: float) -> None:
        self._sessions = sessions
        self._workers = workers
        self._retention_ms = round(lost_retention_seconds * 1000)

    async def sweep(self, pool: str, incarnation: str) -> None:
        """Marks all sessions of a lost incarnation; raises StoreUnavailable."""
        while records := await self._sessions.of_incarnation(pool, incarnation, _BATCH):
            outcomes = await self._sessions.lose_all(records, self._retention_ms)
            for record, outcome in zip(records, outcomes, strict=True):
                if outcome == "lost":
                    _log.info("session lost", session_id=record.session_id, worker_id=record.worker_id)
            if "alive" in outcomes:
                return  # somebody else's sweep is over and the incarnation has joined again: these are its own
        await self._workers.swept(pool, incarnation)
