"""Closing a session so that nothing is left over."""

import secrets
from dataclasses import dataclass
from typing import Unpack

import structlog

from kakeya_router.snapshots.snapshotting import Snapshotting
from kakeya_router.store.connection import is_done
from kakeya_router.store.persistence import persist
from kakeya_router.store.session_record import Claim, SessionRecord
from kakeya_router.store.sessions.closing_store import ClosingStore
from kakeya_router.store.sessions.session_changes import Cause, ClosedOnly
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_router.workers.worker_errors import WorkerError
from kakeya_shared.errors.tree import KakeyaError, StoreUnavailable
from kakeya_shared.process.detached_tasks import DetachedTasks

_log = structlog.get_logger()


# Opening or closing a lane waits for one step of the worker at most; a large model on a small host steps for seconds.
LANE_SECONDS = 10.0
LANE_LEASE_SECONDS = 1.5 * LANE_SECONDS


@dataclass(eq=False, slots=True)
class Closing:
    """Closes sessions: claimed in Redis, then the worker's lane is closed, then the record and its files are deleted.

    A session that ends with its answer may have lost its lane with that; see `finish`. Whatever fails in the middle,
    another router or the reaper ends it: the claim lapses. Called by `Sessions` for a request or an expiry, by
    `Opening` for an attempt that failed, by `Operations`, by `IdleLanes`.
    """

    _store: ClosingStore
    _workers: WorkerClients
    _snapshotting: Snapshotting
    _tasks: DetachedTasks

    async def close(self, record: SessionRecord, cause: Cause, **only: Unpack[ClosedOnly]) -> int | None:
        """Claims the session for good, closes its lane and forgets it.

        Args:
            only: what some causes ask for, as in `ClosingStore.begin_close`.

        Returns:
            The final history length; None when the session is gone already or must be kept.

        Raises:
            StoreUnavailable
        """
        claim = Claim(secrets.token_hex(8))
        answer = await self._store.begin_close(record, claim, cause, **only)
        return await self.finish(answer.record, claim) if is_done(answer.outcome) else None

    async def finish(self, claimed: SessionRecord, claim: Claim, *, lane_freed: bool = False) -> int:
        """Closes the lane of a session that is claimed for good, and forgets it; returns the final history length.

        Args:
            lane_freed: the worker has closed it with the session's last answer.

        Raises:
            StoreUnavailable: the rest is done once Redis is back.
        """
        final_length = max(claimed.history_length, claimed.journal_length)
        if claimed.holds_lane and not lane_freed:
            try:
                lane_length = await self._workers.at(claimed.address).close_session(claimed, LANE_SECONDS)
                final_length = max(final_length, lane_length)
            except (WorkerError, KakeyaError) as error:
                # It closes the lane when it finds it among the orphans of a heartbeat, or it is gone.
                _log.info("worker did not close the lane", session_id=claimed.session_id, error=repr(error))
        try:
            await self._store.delete(claimed, claim, final_length)
        except StoreUnavailable:  # it may be deleted, and no record would name its files then
            self._tasks.start(persist(lambda: self._forget(claimed, claim, final_length)))
            raise
        self._tasks.start(self._snapshotting.tidy(claimed))
        return final_length

    async def _forget(self, claimed: SessionRecord, claim: Claim, final_length: int) -> None:
        await self._store.delete(claimed, claim, final_length)
        await self._snapshotting.tidy(claimed)
