"""When a session is written to the snapshot store, and what is removed from there."""

import asyncio
import re
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import structlog

from kakeya_router.contract import refusals
from kakeya_router.snapshots import snapshot_plan
from kakeya_router.store.keys import pool_of
from kakeya_router.store.outcomes import SetSnapshots
from kakeya_router.store.persistence import persist
from kakeya_router.store.session_record import SessionRecord, State
from kakeya_router.store.sessions import stored_snapshots
from kakeya_router.store.sessions.snapshot_lists import SnapshotLists
from kakeya_router.store.sessions.stored_snapshots import Snapshots, StoredSnapshot
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.workers.fleet import Fleet
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_router.workers.worker_errors import WorkerError
from kakeya_shared.errors.tree import KakeyaError, StoreUnavailable
from kakeya_shared.process.detached_tasks import DetachedTasks

_log = structlog.get_logger()

# Where a worker does not know how fast it prefills.
_TOKENS = 256
_FEWEST_TOKENS, _MOST_TOKENS = 32, 4096
# A step copies, then disks and networks are slow.
_WRITE_SECONDS = 60.0
_DELETE_SECONDS = 10.0
# What the worker has generated is journaled within a group's time.
_AHEAD_SECONDS = 0.05
_NUM_ATTEMPTS = 100

# As `write_now` and the worker name them, and what a store leaves of one that was not written to its end.
_NAME = re.compile(r"(?P<pool>[^/]+)/(?P<session>[^/]+)-\d+-\d+-[0-9a-f]{8}-\d+\.safetensors(\.[0-9a-f]{16}\.part)?")


def _owner(pool: str, name: str) -> str:
    """The session that a file belongs to; empty: none of the pool's."""
    match = _NAME.fullmatch(name)
    return match["session"] if match and match["pool"] == pool and pool_of(match["session"]) == pool else ""


def _followed(record: SessionRecord, worker: WorkerRecord) -> Snapshots:
    """The session's own snapshots, if this worker reads them: its new ones can follow them."""
    return stored_snapshots.parse(record.snapshots) if record.snapshot_store == worker.snapshot_store else ()


def _files(record: SessionRecord) -> dict[str, str]:
    """Those that a session names, and the stores that they are in."""
    inherited = {each.name: record.inherited_store for each in stored_snapshots.parse(record.inherited)}
    return inherited | {each.name: record.snapshot_store for each in stored_snapshots.parse(record.snapshots)}


def _newest(record: SessionRecord, worker: WorkerRecord) -> int:
    """History length of the newest snapshot that this worker reads."""
    return max((each.length for each in snapshot_plan.in_store(record, worker.snapshot_store)), default=0)


@dataclass(slots=True)
class Mark:
    """How far the snapshots of an operation have come, which its record, of when it began, does not say."""

    length: int = 0


class Snapshotting:
    """Writes snapshots in the background, one of a session at a time.

    Args:
        turns: write one after so many turns.
        recovery_seconds: and whenever prefilling what came since the last would take longer than that.
        journal_tokens: how much of a history may be in the journal and in no snapshot.
    """

    def __init__(
        self,
        store: SnapshotLists,
        workers: WorkerClients,
        fleet: Fleet,
        tasks: DetachedTasks,
        *,
        turns: int,
        recovery_seconds: float,
        journal_tokens: int,
    ) -> None:
        self._store = store
        self._workers = workers
        self._fleet = fleet
        self._tasks = tasks
        self._turns = turns
        self.recovery_seconds = recovery_seconds
        self.journal_tokens = journal_tokens
        self._writing: dict[str, bool] = {}  # by session; whether a turn has ended meanwhile
        self._troubled: set[str] = set()

    def consider(self, record: SessionRecord, journal_length: int, *, is_turn: bool, mark: Mark | None = None) -> None:
        """Writes a snapshot if it is time for one.

        Args:
            record: the session as the operation began; its lane is where it says.
            journal_length: of its history now.
            is_turn: a turn has ended.
            mark: of an operation that goes on.
        """
        worker, mark = self._fleet.worker(record.incarnation), mark or Mark()
        if worker is None:
            self._tasks.start(self._look_and_consider(record, journal_length, is_turn=is_turn, mark=mark))
        elif record.session_id in self._writing:
            self._writing[record.session_id] |= is_turn
        elif worker.saves(record):
            self._consider(record, worker, journal_length, is_turn=is_turn, mark=mark)

    async def _look_and_consider(
        self, record: SessionRecord, journal_length: int, *, is_turn: bool, mark: Mark
    ) -> None:
        """Its worker has joined just now, or is gone."""
        await persist(self._fleet.look)
        if self._fleet.worker(record.incarnation) is not None:
            self.consider(record, journal_length, is_turn=is_turn, mark=mark)

    def _consider(
        self, record: SessionRecord, worker: WorkerRecord, journal_length: int, *, is_turn: bool, mark: Mark
    ) -> None:
        if is_turn or journal_length - max(mark.length, _newest(record, worker)) >= self._tokens(worker):
            self._writing[record.session_id] = False
            self._tasks.start(self._write(record.session_id, worker, mark))

    def check_room(self, record: SessionRecord, num_tokens: int) -> None:
        """Raises SnapshotStoreUnavailable: the journal is full, since the store has taken nothing for long.

        A Generate that was let in is not ended by it.
        """
        worker = self._fleet.worker(record.incarnation)
        if worker is None or not worker.saves(record):
            return
        since = max(record.journal_start, _newest(record, worker))  # between the two newest snapshots there are no more
        if record.journal_length - since + num_tokens > self.journal_tokens:
            self.consider(record, record.journal_length, is_turn=True)  # if it works now, there is room soon
            raise refusals.journal_full(self.journal_tokens)

    def _is_due(self, record: SessionRecord, worker: WorkerRecord) -> bool:
        newest = _newest(record, worker)
        if newest < record.journal_start:  # it has moved here, and what it has is in another store
            return True
        num_turns = sum(boundary > newest for boundary in record.turn_boundaries)
        return num_turns >= self._turns or record.journal_length - newest >= self._tokens(worker)

    async def write_now(self, record: SessionRecord, worker: WorkerRecord) -> bool:
        """Writes what a session has gained since its last snapshot; whether all of it is in the store then.

        Raises:
            WorkerError, KakeyaError
        """
        if record.journal_length and _newest(record, worker) >= record.journal_length:
            return True
        start = snapshot_plan.next_start(_followed(record, worker), record.journal_length, record.sink + record.window)
        new, seen = await self.write(record, start), dict[str, str]()
        try:
            return await self._kept_or_removed(record, new, worker, seen)
        except StoreUnavailable:
            self._tasks.start(persist(lambda: self._kept_or_removed(record, new, worker, seen)))
            raise

    async def write(self, record: SessionRecord, start: int) -> StoredSnapshot:
        """Writes what a session has gained since a history index into a file that is not one of its snapshots yet.

        Raises:
            WorkerError, KakeyaError
        """
        # Of two routers that write the same at once, one removes its own file.
        prefix = f"{record.pool}/{record.session_id}-{record.epoch}-{start}-{secrets.token_hex(4)}"
        return await self._workers.at(record.address).write_snapshot(record, start, prefix, _WRITE_SECONDS)

    async def tidy(self, record: SessionRecord) -> None:
        """Removes what a session had and needs no more, if no other session needs it."""
        await persist(lambda: self._remove(record.pool, _files(record)))

    async def _remove(self, pool: str, files: Mapping[str, str]) -> None:
        """Those of the files, of which the stores are known, that no session needs; raises StoreUnavailable."""
        orphans = await self.orphans(pool, files) if files else []
        for store in sorted({files[name] for name in orphans}):
            names = [name for name in orphans if files[name] == store]
            await self.delete(names, self._fleet.with_store(pool, store))

    async def orphans(self, pool: str, names: Iterable[str]) -> list[str]:
        """Those of the files that belong to a session of the pool, as their names say, and that no session needs.

        Raises StoreUnavailable.
        """
        owners = {name: session_id for name in names if (session_id := _owner(pool, name))}
        needed = await self._named(pool, owners.values())
        # What its own session does not name any more nobody inherits but from an heir.
        heirs = await self._store.heirs(pool, [name for name in owners if name not in needed])
        inherited = await self._named(pool, heirs.values())
        await self._store.forget_heirs(pool, {name: heirs[name] for name in heirs if name not in inherited})
        return [name for name in owners if name not in needed and name not in heirs]

    async def _named(self, pool: str, session_ids: Iterable[str]) -> set[str]:
        """The files that these sessions name."""
        records = await self._store.records(pool, sorted(set(session_ids)))
        return {each.name for record in records for each in snapshot_plan.of(record)}

    async def delete(self, names: Collection[str], workers: Iterable[WorkerRecord]) -> None:
        """By one of these workers; what none of them removes is swept later."""
        for worker in workers:
            try:
                await self._workers.at(worker.address).delete_snapshots(names, _DELETE_SECONDS)
            except (WorkerError, KakeyaError) as error:
                _log.info("snapshots not removed yet", worker_id=worker.worker_id, error=repr(error))
            else:
                return

    def _tokens(self, worker: WorkerRecord) -> int:
        tokens = round(self.recovery_seconds * worker.prefill_tokens_per_second) or _TOKENS
        return min(max(tokens, _FEWEST_TOKENS), _MOST_TOKENS)

    async def _write(self, session_id: str, worker: WorkerRecord, mark: Mark) -> None:
        try:
            await persist(lambda: self._write_if_due(session_id, worker, mark))
        except (WorkerError, KakeyaError) as error:
            self._warn(worker, error)
        finally:
            turn_has_ended = self._writing.pop(session_id)
        if turn_has_ended:
            await persist(lambda: self._consider_again(session_id))

    async def _write_if_due(self, session_id: str, worker: WorkerRecord, mark: Mark) -> None:
        record = await self._store.get(session_id)
        if record is not None and record.state is State.OPEN and record.incarnation == worker.incarnation:
            is_due = self._is_due(record, worker)
            mark.length = record.journal_length if is_due else _newest(record, worker)
            if is_due:
                await self.write_now(record, worker)
        self._troubled.discard(worker.incarnation)

    async def _consider_again(self, session_id: str) -> None:
        """It may have moved while it was written."""
        record = await self._store.get(session_id)
        if record is not None:
            self.consider(record, record.journal_length, is_turn=True)

    def _warn(self, worker: WorkerRecord, error: Exception) -> None:
        """Once, until it works again: it would be said with each turn of each session."""
        if worker.incarnation not in self._troubled:
            self._troubled.add(worker.incarnation)
            _log.warning("no snapshot is written", worker_id=worker.worker_id, error=repr(error))

    async def _kept_or_removed(
        self, begun: SessionRecord, new: StoredSnapshot, worker: WorkerRecord, seen: dict[str, str]
    ) -> bool:
        """Whether a file has become one of the session's, which was as `begun` says before it was taken. Then those
        that it replaces are removed, perhaps from the store of a worker that the session has left; else it is.

        Args:
            seen: the session's files before; kept from one attempt to the next, since an answer may be lost.

        Raises:
            StoreUnavailable: that is not known, and no file was removed.
        """
        if not await self._is_kept(begun, new, worker, seen):
            await self.delete([new.name], [worker])
            return False
        await self._remove(begun.pool, seen)
        return True

    async def _is_kept(
        self, begun: SessionRecord, new: StoredSnapshot, worker: WorkerRecord, seen: dict[str, str]
    ) -> bool:
        """Whether the session has a snapshot more; it is not where that is not wanted any more."""
        for _ in range(_NUM_ATTEMPTS):
            record = await self._store.get(begun.session_id)
            if record is None or record.epoch != begun.epoch:
                return False
            before, inherited = _followed(record, worker), stored_snapshots.parse(record.inherited)
            if new in before:  # by an attempt whose answer was lost
                return True
            if before and before[-1].length >= new.length:
                return False
            seen.update(_files(record))
            wanted = [*record.turn_boundaries, record.operation_start]  # who has an answer may want another one
            kept = snapshot_plan.kept((*inherited, *before, new), wanted)
            if new not in kept:
                return False  # what it follows was removed meanwhile
            outcome = await self._store.set_snapshots(
                record,
                tuple(each for each in kept if each not in inherited),
                snapshot_plan.journal_start(kept, wanted),
                worker.snapshot_store,
                begun.num_rewinds,
                tuple(each for each in kept if each in inherited),
            )
            if outcome is SetSnapshots.UNLIKE:
                _log.warning("a lane holds another history than its session", session_id=begun.session_id)
            if outcome not in (SetSnapshots.AHEAD, SetSnapshots.CHANGED):
                return outcome is SetSnapshots.SET
            await asyncio.sleep(_AHEAD_SECONDS)
        return False
