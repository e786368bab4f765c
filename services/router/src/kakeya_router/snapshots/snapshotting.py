"""When a session is written to the snapshot store."""

import asyncio
from dataclasses import KW_ONLY, dataclass, field

import structlog

from kakeya_router.contract import refusals
from kakeya_router.snapshots import snapshot_plan
from kakeya_router.snapshots.snapshot_files import SnapshotFiles
from kakeya_router.store.persistence import persist
from kakeya_router.store.session_record import Incarnation, SessionId, SessionRecord, State
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.workers.worker_errors import WorkerError
from kakeya_shared.errors.tree import KakeyaError

_log = structlog.get_logger()

# Where a worker does not know how fast it prefills.
_TOKENS = 256
# In the middle of a turn fewer are never written.
FEWEST_TOKENS, _MOST_TOKENS = 32, 4096


@dataclass(slots=True)
class Mark:
    """How far the snapshots of an operation have come, which its record, of when it began, does not say.

    Attributes:
        due_length: before its history is that long, nothing is to be written.
    """

    due_length: int = 0


@dataclass(eq=False, slots=True)
class _Writing:
    """A snapshot that is being written in the background."""

    turn_has_ended: bool = False  # meanwhile
    ended: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class Snapshotting(SnapshotFiles):
    """Decides when a session is written, and writes it in the background, one file of a session at a time.

    A turn's end is written so that it can be gone back to, a long history so that little is prefilled anew when its
    worker is lost. So is where a rewind has ended: the snapshots of what it took back are gone, and where each answer
    is taken back, as in a chat whose answers are cut, there would never be one. Operations ask: at their ends, after
    each group of the journal, while a long prefill runs.

    Attributes:
        turns: write one after so many turns.
        recovery_seconds: and whenever prefilling what came since the last would take longer than that.
        journal_tokens: how much of a history may be in the journal and in no snapshot.
    """

    _: KW_ONLY
    turns: int
    recovery_seconds: float
    journal_tokens: int
    _writing: dict[SessionId, _Writing] = field(default_factory=dict, init=False)
    _troubled: set[Incarnation] = field(default_factory=set, init=False)

    def consider(self, record: SessionRecord, journal_length: int, *, is_turn: bool, mark: Mark | None = None) -> None:
        """Writes a snapshot if it is time for one.

        Args:
            record: the session as the operation began; its lane is where it says.
            journal_length: of its history now.
            is_turn: a turn has ended, or was taken back.
            mark: of an operation that goes on.
        """
        if not record.journal_start and journal_length < _fewest_tokens(record, is_turn=is_turn):
            return
        worker, mark = self._fleet.worker(record.incarnation), mark or Mark()
        if worker is None:
            self._tasks.start(persist(lambda: self._consider_anew(record.session_id, is_turn=is_turn)))
        elif record.session_id in self._writing:
            self._writing[record.session_id].turn_has_ended |= is_turn
        elif record.can_be_stored(worker.snapshot_store):
            newest_length = snapshot_plan.newest_length(record, worker.snapshot_store)
            mark.due_length = max(mark.due_length, newest_length + self._num_tokens(worker))
            if is_turn or journal_length >= mark.due_length:
                self._writing[record.session_id] = _Writing()
                self._tasks.start(self._write(record.session_id, worker, mark))

    async def write_rest(self, record: SessionRecord, worker: WorkerRecord) -> bool:
        """As `write_now`. What is being written of the session in the background is waited for, not written twice."""
        if (writing := self._writing.get(record.session_id)) is not None:
            await writing.ended.wait()
            now = await self._store.get(record.session_id)
            if now is None or now.epoch != record.epoch:
                return False
            record = now
        return await self.write_now(record, worker)

    async def check_room(self, record: SessionRecord, num_tokens: int) -> None:
        """Raises SnapshotStoreUnavailable: the journal is full, since the store has taken nothing for long.

        A Generate that was let in is not ended by it.
        """
        if record.journal_length - record.journal_start + num_tokens <= self.journal_tokens:
            return
        worker = await self._fleet.looked_up(record.incarnation)
        if worker is None or not record.can_be_stored(worker.snapshot_store):
            return
        # Between the two newest snapshots there are no more.
        since = max(record.journal_start, snapshot_plan.newest_length(record, worker.snapshot_store))
        if record.journal_length - since + num_tokens > self.journal_tokens:
            self.consider(record, record.journal_length, is_turn=True)  # if it works now, there is room soon
            raise refusals.journal_full(self.journal_tokens)

    def _num_tokens(self, worker: WorkerRecord) -> int:
        """That are prefilled within `recovery_seconds`."""
        num_tokens = round(self.recovery_seconds * worker.prefill_tokens_per_second) or _TOKENS
        return min(max(num_tokens, FEWEST_TOKENS), _MOST_TOKENS)

    async def _write(self, session_id: SessionId, worker: WorkerRecord, mark: Mark) -> None:
        try:
            await persist(lambda: self._write_if_due(session_id, worker, mark))
        except (WorkerError, KakeyaError) as error:
            # Once, until it works again: it would be said with each turn of each session.
            if worker.incarnation not in self._troubled:
                self._troubled.add(worker.incarnation)
                _log.warning("no snapshot is written", worker_id=worker.worker_id, error=repr(error))
        finally:
            writing = self._writing.pop(session_id)
            writing.ended.set()
        if writing.turn_has_ended:
            await persist(lambda: self._consider_anew(session_id, is_turn=True))

    async def _write_if_due(self, session_id: SessionId, worker: WorkerRecord, mark: Mark) -> None:
        record = await self._store.get(session_id)
        if record is not None and record.state is State.OPEN and record.incarnation == worker.incarnation:
            newest_length = snapshot_plan.newest_length(record, worker.snapshot_store)
            num_tokens = self._num_tokens(worker)
            is_due = (
                newest_length < record.journal_start  # it has moved here, and what it has is in another store
                or sum(boundary > newest_length for boundary in record.turn_boundaries) >= self.turns
                or record.journal_length - newest_length >= num_tokens
                or newest_length < record.operation_start == record.journal_length  # the latest answer was taken back
            )
            mark.due_length = (record.journal_length if is_due else newest_length) + num_tokens
            if is_due:
                await self.write_now(record, worker)
        self._troubled.discard(worker.incarnation)

    async def _consider_anew(self, session_id: SessionId, *, is_turn: bool) -> None:
        """With the session and its worker as they are now: it may have moved, or its worker has joined just now."""
        record = await self._store.get(session_id)
        if record is not None and await self._fleet.looked_up(record.incarnation) is not None:
            self.consider(record, record.journal_length, is_turn=is_turn)


def _fewest_tokens(record: SessionRecord, *, is_turn: bool) -> int:
    """With a shorter history no snapshot is written: not of a session, either, that is closed sooner than parked after
    its first turn.
    """
    if not is_turn:
        return FEWEST_TOKENS
    return record.cheap_tokens + 1 if record.disposable and not record.boundaries else 0
