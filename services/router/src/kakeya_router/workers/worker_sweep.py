"""What is left to do when a worker is gone: its sessions are parked, or LOST, a batch at a time."""

from dataclasses import dataclass
from typing import assert_never

import structlog

from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.outcomes import LoseSession
from kakeya_router.store.session_record import Incarnation, PoolName
from kakeya_router.store.sessions.session_changes import TimesToLive
from kakeya_router.store.sessions.session_lists import SessionLists

_BATCH = 128

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class WorkerSweep:
    """Parks the sessions of a worker that is gone, or marks them LOST where nothing has their history.

    An incarnation that was dropped stays on a list in Redis until this is done, so that no router's end leaves any
    behind; several may sweep the same one at once. The reaper calls it, and a worker that joins again waits for it.

    Args:
        times_to_live: of sessions whose lane is gone.
    """

    _sessions: SessionLists
    _workers: WorkerStore
    _times_to_live: TimesToLive

    async def sweep(self, pool: PoolName, incarnation: Incarnation) -> None:
        """Marks all sessions of a lost incarnation; raises StoreUnavailable."""
        while records := await self._sessions.of_incarnation(pool, incarnation, _BATCH):
            outcomes = await self._sessions.lose_all(records, self._times_to_live)
            for record, outcome in zip(records, outcomes, strict=True):
                match outcome:
                    case LoseSession.LOST | LoseSession.PARKED:
                        _log.info(f"session {outcome}", session_id=record.session_id, worker_id=record.worker_id)
                    case LoseSession.ALIVE:
                        return  # another router's sweep is over and the incarnation has joined again: these are its own
                    case LoseSession.GONE | LoseSession.BUSY:
                        pass
                    case never:
                        assert_never(never)
        await self._workers.swept(pool, incarnation)
