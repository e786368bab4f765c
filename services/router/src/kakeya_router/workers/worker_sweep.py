"""What is left to do when a worker is gone: its sessions are parked, or LOST, a batch at a time."""

import structlog

from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.outcomes import LoseSession
from kakeya_router.store.sessions.session_changes import TimesToLive
from kakeya_router.store.sessions.session_lists import SessionLists

_BATCH = 128

_log = structlog.get_logger()


class WorkerSweep:
    """Several routers may sweep the same incarnation at once.

    Args:
        retention: of sessions whose lane is gone.
    """

    def __init__(self, sessions: SessionLists, workers: WorkerStore, retention: TimesToLive) -> None:
        self._sessions = sessions
        self._workers = workers
        self._retention = retention

    async def sweep(self, pool: str, incarnation: str) -> None:
        """Marks all sessions of a lost incarnation; raises StoreUnavailable."""
        while records := await self._sessions.of_incarnation(pool, incarnation, _BATCH):
            outcomes = await self._sessions.lose_all(records, self._retention)
            for record, outcome in zip(records, outcomes, strict=True):
                if outcome in (LoseSession.LOST, LoseSession.PARKED):
                    _log.info(f"session {outcome}", session_id=record.session_id, worker_id=record.worker_id)
            if LoseSession.ALIVE in outcomes:
                return  # somebody else's sweep is over and the incarnation has joined again: these are its own
        await self._workers.swept(pool, incarnation)
