"""Lanes for sessions that begin as another one was at an earlier length."""

from dataclasses import dataclass, replace

from kakeya_router.contract import refusals
from kakeya_router.contract.lanes import Opened
from kakeya_router.lanes import candidates
from kakeya_router.lanes.restoring import restored
from kakeya_router.snapshots import past
from kakeya_router.snapshots.past import Past
from kakeya_router.store.session_record import LaneState, SessionRecord
from kakeya_router.store.sessions.journal_store import JournalStore
from kakeya_router.store.sessions.session_store import BYTES_PER_TOKEN
from kakeya_router.workers.worker_client import RunningCall
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_shared.errors.tree import HistoryFull
from kakeya_shared.settings.service import LONGEST_APPEND_TOKENS


@dataclass(eq=False, slots=True)
class PastLanes:
    """Opens such lanes without the lane of the other session, which may be busy, elsewhere or gone.

    It needs that session's snapshots and journal alone. Called by `Opening` for forks at an earlier length.
    """

    _store: JournalStore
    _workers: WorkerClients

    async def read(self, source: SessionRecord, length: int) -> Past:
        """What there is of a session at a length.

        Raises:
            SessionNotFound, WorkerLost: it is closed or lost by now.
            BoundaryNotReachable: it was there, and is not any more.
            StoreUnavailable
        """
        found = await self._store.past(source, length)
        if found is None:
            raise refusals.not_found()
        record, journaled, digest = found
        if not past.is_reachable(record, length):
            raise past.not_reachable(record, length)
        if len(journaled) < BYTES_PER_TOKEN * (length - record.journal_start):
            raise refusals.lost()
        return Past(record, length, journaled, digest)

    async def open(self, record: SessionRecord, begin: Past, snapshot_store: str, running: RunningCall) -> Opened:
        """Opens the lane of a session with the newest chain of snapshots that is whole, and prefills what is journaled
        after it.

        Args:
            snapshot_store: of the worker that the record is of.
            running: the prefill, which takes as long as it takes.

        Raises:
            BoundaryNotReachable: no snapshot can be used, or not all of it fits a session that refuses to forget.
            NoWorker: this worker cannot, and another one may.
            WorkerError, KakeyaError
        """
        what = await restored(self._workers, record, begin, snapshot_store)
        if what.opened is None:
            is_nowhere = (what.unusable or what.is_damaged) and not (what.is_puzzling or what.is_unread)
            raise past.not_reachable(begin.record, begin.length) if is_nowhere else candidates.unreachable()
        lane = await self._prefilled(record, begin, what.opened.lane, running)
        return replace(what.opened, lane=lane)

    async def _prefilled(self, record: SessionRecord, begin: Past, lane: LaneState, running: RunningCall) -> LaneState:
        client = self._workers.at(record.address)
        while (start := lane.history_length) < begin.length:
            token_ids = begin.token_ids(start, min(begin.length, start + LONGEST_APPEND_TOKENS))
            try:
                answer = await client.append(replace(record, history_length=start), token_ids, running)
            except HistoryFull as error:  # the last append of the source, which did not fit there either
                raise past.not_reachable(begin.record, begin.length) from error
            lane = answer.lane
        return lane
