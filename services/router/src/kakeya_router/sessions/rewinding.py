"""Taking the last tokens of a history back: `RewindSession`."""

from dataclasses import dataclass
from typing import assert_never

from kakeya_router.contract import validation
from kakeya_router.lanes import candidates
from kakeya_router.operations.operation import Elsewhere, Operation
from kakeya_router.operations.operations import Operations
from kakeya_router.operations.recovery import Recovery
from kakeya_router.snapshots import past
from kakeya_router.snapshots.snapshotting import Snapshotting
from kakeya_router.store.outcomes import RewindSession
from kakeya_router.store.session_record import LaneState, SessionRecord
from kakeya_router.store.sessions import stored_snapshots
from kakeya_router.store.sessions.journal_store import JournalStore
from kakeya_router.store.sessions.session_changes import Intent
from kakeya_router.store.sessions.session_store import Taken
from kakeya_router.store.sessions.stored_snapshots import Snapshots
from kakeya_router.store.sessions.tag_store import TagStore
from kakeya_router.workers.fleet import Fleet
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_router.workers.worker_errors import LaneGone, WorkerError
from kakeya_shared.errors.tree import (
    BoundaryNotReachable,
    DeadlineExceeded,
    HistoryLengthMismatch,
    Internal,
    Unavailable,
)
from kakeya_shared.process.detached_tasks import DetachedTasks

# One token is forwarded, after the step that runs.
_REWIND_SECONDS = 10.0


@dataclass(eq=False, slots=True)
class Rewinding:
    """Rewinds sessions, each in an operation of its own; called by `RuntimeService`.

    A lane that has forgotten nothing yet goes back by itself, at the cost of one token. Else the session is parked at
    the shorter history, and resumed from a snapshot from before and the journal since.
    """

    _store: JournalStore
    _tag_store: TagStore
    _workers: WorkerClients
    _fleet: Fleet
    _operations: Operations
    _recovery: Recovery
    _snapshotting: Snapshotting
    _tasks: DetachedTasks

    async def rewind(
        self,
        record: SessionRecord,
        length: int,
        expected_length: int | None,
        *,
        only_untagged: bool = False,
        op_id: str = "",
    ) -> SessionRecord:
        """Takes a history back to a length; returns the session as it is then.

        Args:
            expected_length: of the history before; None: whatever it is.
            only_untagged: not where a place beyond that has tags.
            op_id: not where the latest operation is another one; empty: whatever it is.

        Raises:
            HistoryLengthMismatch: it is neither that long nor as long as it is to be.
            BoundaryNotReachable: it cannot be taken back to there; says where it can.
            NoWorker: its worker did not answer, and nothing has changed.
            NoWorker, NoCapacity: the history was taken back, and no worker has a lane now: a repetition finds it done.
            SnapshotStoreUnavailable: it could not be resumed there if its worker were lost; nothing has changed.
            as `Operations.running`
        """
        intent = Intent("rewind", {}, is_charged=False, behind=op_id)
        try:
            async with self._operations.running(record, intent) as operation:
                record = operation.record
                if record.history_length == length:
                    return record
                if expected_length is not None:
                    validation.check_history_length(expected_length, record.history_length)
                is_longer = length > record.history_length
                if is_longer or (only_untagged and await self._is_tagged_beyond(record, length)):
                    raise past.not_reachable(record, length)
                lane = await operation.complete(self._taken_back(operation, length))
                await self._operations.finish(operation, lane)
        except Elsewhere as elsewhere:
            if elsewhere.record.journal_length == length:
                return elsewhere.record
            raise past.not_reachable(elsewhere.record, length) from None
        return operation.record

    async def _is_tagged_beyond(self, record: SessionRecord, length: int) -> bool:
        """It stays as it is found: nothing is tagged while a rewind runs."""
        tagged = await self._tag_store.tagged(record.pool, record.session_id)
        return tagged is not None and any(place.length > length for place in tagged.places)

    async def _taken_back(self, operation: Operation, length: int) -> LaneState:
        await self._fleet.looked_up(operation.record.incarnation)  # it may have joined just now
        if operation.record.lane.num_dropped_tokens == 0 and await self._in_its_lane(operation, length):
            return operation.record.lane
        # What the lane holds goes with it: a worker that drains by now, or is gone, is not to be counted on.
        await self._fleet.look()
        operation.calls_worker()
        parked = await self._committed(operation, length, None)
        await self._recovery.leave(operation, parked)
        return operation.record.lane

    async def _in_its_lane(self, operation: Operation, length: int) -> bool:
        """Whether the lane could go back. It goes first: should nothing more come of it, the session is resumed as it
        was.
        """
        record = operation.record
        if self._fleet.worker(record.incarnation) is None:
            raise candidates.unreachable()
        operation.calls_worker()
        try:
            lane = await self._workers.at(record.address).rewind(record, length, _REWIND_SECONDS)
        except (BoundaryNotReachable, HistoryLengthMismatch, LaneGone):
            return False  # what it holds is forgotten, or another history
        except (WorkerError, DeadlineExceeded, Unavailable, Internal) as error:
            raise candidates.unreachable() from error
        operation.rewound(await self._committed(operation, length, lane))
        operation.committed(lane)
        return True

    async def _committed(self, operation: Operation, length: int, lane: LaneState | None) -> SessionRecord:
        """Has the store take the history back; returns the session as it is there then. None: its lane is given up."""
        record, new = operation.record, None
        worker = self._fleet.worker(record.incarnation)
        while True:
            before, store = stored_snapshots.parse(record.snapshots), record.snapshot_store
            kept: Snapshots = tuple(each for each in before if each.length <= length)
            inherited = tuple(each for each in stored_snapshots.parse(record.inherited) if each.length <= length)
            read = self._fleet.readable(record)
            if length and not past.is_reachable(read, length):
                if lane is None:
                    raise past.not_reachable(read, length)
                if worker is None:  # it has gone since its lane went back, and with it the history at that place
                    raise candidates.unreachable()
                if record.can_be_stored(worker.snapshot_store):
                    new = new or await self._snapshotting.write(record, 0)
                    kept, store = (new,), worker.snapshot_store
            answer = await self._store.rewind(
                record,
                operation.claim,
                length,
                kept,
                store,
                None if lane is None else lane.num_rewinds,
                inherited,
                None if lane is None else lane.history_digest,
            )
            match answer.outcome:
                case RewindSession.REWOUND:
                    self._tasks.start(self._snapshotting.tidy(record))
                    return answer.record
                case RewindSession.CHANGED:
                    record = answer.record
                case RewindSession.GONE:
                    if worker is not None and new is not None:
                        self._tasks.start(self._snapshotting.delete([new.name], [worker]))
                    raise Taken
                case never:
                    assert_never(never)
