"""Closing a session so that nothing is left over."""

import secrets

import structlog

from kakeya_router.snapshots.snapshotting import Snapshotting
from kakeya_router.store.outcomes import BeginClose
from kakeya_router.store.persistence import persist
from kakeya_router.store.session_record import SessionRecord
from kakeya_router.store.sessions.closing_store import ClosingStore
from kakeya_router.store.sessions.session_changes import Cause
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_router.workers.worker_errors import WorkerError
from kakeya_shared.errors.tree import KakeyaError, StoreUnavailable
from kakeya_shared.process.detached_tasks import DetachedTasks

_log = structlog.get_logger()


# Taking or freeing a lane waits for one step of the worker at most; a large model on a small host steps for seconds.
LANE_SECONDS = 10.0
LANE_LEASE_SECONDS = 1.5 * LANE_SECONDS


class Closing:
    """Closes sessions."""

    def __init__(
        self, store: ClosingStore, workers: WorkerClients, snapshotting: Snapshotting, tasks: DetachedTasks
    ) -> None:
        self._store = store
        self._workers = workers
        self._snapshotting = snapshotting
        self._tasks = tasks

    async def close(self, record: SessionRecord, cause: Cause, *, idle_ms: int = 0, wanted_by: str = "") -> int | None:
        """Takes the session for good, frees its lane and gives it back; the last two are of Cause.IDLE.

        Returns:
            The final history length; None when the session is gone already or must be kept.

        Raises:
            StoreUnavailable
        """
        claim = secrets.token_hex(8)
        answer = await self._store.begin_close(record, claim, cause, idle_ms=idle_ms, wanted_by=wanted_by)
        return await self.finish(answer.record, claim) if answer.outcome is BeginClose.CLAIMED else None

    async def finish(self, claimed: SessionRecord, claim: str) -> int:
        """Frees the lane of a session that is taken for good, and forgets it; returns the final history length.

        Raises:
            StoreUnavailable: the rest is done once Redis is back.
        """
        final_length = max(claimed.history_length, claimed.journal_length)
        if claimed.holds_lane:
            try:
                lane_length = await self._workers.at(claimed.address).close_session(claimed, LANE_SECONDS)
                final_length = max(final_length, lane_length)
            except (WorkerError, KakeyaError) as error:
                # It frees the lane when it finds it among the orphans of a heartbeat, or it is gone.
                _log.info("worker did not close the lane", session_id=claimed.session_id, error=repr(error))
        try:
            await self._store.delete(claimed, claim, final_length)
        except StoreUnavailable:  # it may be deleted, and nobody would know its files then
            self._tasks.start(persist(lambda: self._forget(claimed, claim, final_length)))
            raise
        self._tasks.start(self._snapshotting.tidy(claimed))
        return final_length

    async def _forget(self, claimed: SessionRecord, claim: str, final_length: int) -> None:
        await self._store.delete(claimed, claim, final_length)
        await self._snapshotting.tidy(claimed)
