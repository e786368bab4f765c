"""Snapshots as files: written by workers, made a session's own, and removed when no session needs them."""

import asyncio
import re
import secrets
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import assert_never

import structlog

from kakeya_router.metrics import RouterMetrics, no_metrics
from kakeya_router.snapshots import snapshot_plan
from kakeya_router.store.keys import pool_of
from kakeya_router.store.outcomes import SetSnapshots
from kakeya_router.store.persistence import persist
from kakeya_router.store.session_record import PoolName, SessionId, SessionRecord
from kakeya_router.store.sessions import stored_snapshots
from kakeya_router.store.sessions.snapshot_lists import SnapshotLists
from kakeya_router.store.sessions.stored_snapshots import StoredSnapshot
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.workers.fleet import Fleet
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_router.workers.worker_errors import WorkerError
from kakeya_shared.errors.tree import KakeyaError, StoreUnavailable
from kakeya_shared.process.detached_tasks import DetachedTasks
from kakeya_shared.rpc import tracing

_log = structlog.get_logger()

# A step copies, then disks and networks are slow.
_WRITE_SECONDS = 60.0
_DELETE_SECONDS = 10.0
# What the worker has generated is journaled within a group's time.
_AHEAD_SECONDS = 0.05
_NUM_ATTEMPTS = 100

# As `write` and the worker name them, and what a store leaves of one that was not written to its end.
_NAME = re.compile(r"(?P<pool>[^/]+)/(?P<session>[^/]+)-\d+-\d+-[0-9a-f]{8}-\d+\.safetensors(\.[0-9a-f]{16}\.part)?")


def _owner(pool: PoolName, name: str) -> SessionId | None:
    """The session that a file belongs to; None: none of the pool's."""
    match = _NAME.fullmatch(name)
    return SessionId(match["session"]) if match and match["pool"] == pool == pool_of(match["session"]) else None


def _files(record: SessionRecord) -> dict[str, str]:
    """Those that a session names, and the stores that they are in."""
    inherited = {each.name: record.inherited_store for each in stored_snapshots.parse(record.inherited)}
    return inherited | {each.name: record.snapshot_store for each in stored_snapshots.parse(record.snapshots)}


@dataclass(eq=False)
class SnapshotFiles:
    """Has workers write and remove files, for the router reaches no snapshot store itself.

    A file counts once the session's record in Redis names it; one that no record names is removed, so that nothing is
    left over whatever fails in between. Lanes that are parked, moved or closed, rewinds and workers' sweeps call it.
    """

    _store: SnapshotLists
    _workers: WorkerClients
    _fleet: Fleet
    _tasks: DetachedTasks
    _: KW_ONLY
    metrics: RouterMetrics = field(default_factory=no_metrics)

    async def write_now(self, record: SessionRecord, worker: WorkerRecord) -> bool:
        """Writes what a session has gained since its last snapshot; whether all of it is in the store then.

        Raises:
            WorkerError, KakeyaError
        """
        length, store = record.journal_length, worker.snapshot_store
        if length and snapshot_plan.newest_length(record, store) >= length:
            return True
        start = snapshot_plan.next_start(snapshot_plan.own(record, store), length, record.sink + record.window)
        new = await self.write(record, start)
        # The session's files before; kept from one attempt to the next, since an answer may be lost.
        seen: dict[str, str] = {}

        async def settle() -> bool:
            if await self._is_kept(record, new, worker, seen):
                await self._remove(record.pool, seen)  # perhaps from the store of a worker that the session has left
                return True
            await self.delete([new.name], [worker])
            return False

        try:
            return await settle()
        except StoreUnavailable:  # nobody knows whether it is kept, and no file was removed
            self._tasks.start(persist(settle))
            raise

    async def write(self, record: SessionRecord, start: int) -> StoredSnapshot:
        """Writes what a session has gained since a history index into a file that is not one of its snapshots yet.

        Raises:
            WorkerError, KakeyaError
        """
        # Of two routers that write the same at once, one removes its own file.
        prefix = f"{record.pool}/{record.session_id}-{record.epoch}-{start}-{secrets.token_hex(4)}"
        began, outcome = time.monotonic(), "failed"
        try:
            with tracing.part("snapshot", worker_id=record.worker_id, epoch=record.epoch):
                tracing.annotate_session(record.session_id)
                new = await self._workers.at(record.address).write_snapshot(record, start, prefix, _WRITE_SECONDS)
                tracing.annotate(history_length=new.length, snapshot_bytes=new.size_bytes)
            outcome = "written"
        finally:
            self.metrics.snapshot_seconds.labels(outcome).observe(time.monotonic() - began)
        return new

    async def tidy(self, record: SessionRecord) -> None:
        """Removes what a session had and needs no more, if no other session needs it."""
        await persist(lambda: self._remove(record.pool, _files(record)))

    async def orphans(self, pool: PoolName, names: Iterable[str]) -> list[str]:
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

    async def delete(self, names: Collection[str], workers: Iterable[WorkerRecord]) -> None:
        """By one of these workers; what none of them removes is swept later."""
        for worker in workers:
            try:
                await self._workers.at(worker.address).delete_snapshots(names, _DELETE_SECONDS)
            except (WorkerError, KakeyaError) as error:
                _log.info("snapshots not removed yet", worker_id=worker.worker_id, error=repr(error))
            else:
                return

    async def _remove(self, pool: PoolName, files: Mapping[str, str]) -> None:
        """Those of the files, of which the stores are known, that no session needs; raises StoreUnavailable."""
        orphans = await self.orphans(pool, files) if files else []
        for store in sorted({files[name] for name in orphans}):
            names = [name for name in orphans if files[name] == store]
            await self.delete(names, self._fleet.with_store(pool, store))

    async def _named(self, pool: PoolName, session_ids: Iterable[SessionId]) -> set[str]:
        """The files that these sessions name."""
        records = await self._store.records(pool, sorted(set(session_ids)))
        return {each.name for record in records for each in snapshot_plan.of(record)}

    async def _is_kept(
        self, begun: SessionRecord, new: StoredSnapshot, worker: WorkerRecord, seen: dict[str, str]
    ) -> bool:
        """Whether a file has become one of the session's, which was as `begun` says before it was written; it has not
        where that is not wanted any more.

        Args:
            seen: takes in the files that the session has before; see `write_now`.
        """
        for _ in range(_NUM_ATTEMPTS):
            record = await self._store.get(begun.session_id)
            if record is None or record.epoch != begun.epoch:
                return False
            before = snapshot_plan.own(record, worker.snapshot_store)
            inherited = stored_snapshots.parse(record.inherited)
            if new in before:  # by an attempt whose answer was lost
                return True
            if before and before[-1].length >= new.length:
                return False
            seen.update(_files(record))
            # Who has an answer may want another one.
            answers = (record.operation_start, await self._store.previous_start(record))
            wanted = [*record.turn_boundaries, *answers]
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
            match outcome:
                case SetSnapshots.SET:
                    return True
                case SetSnapshots.UNLIKE:
                    _log.warning("a lane holds another history than its session", session_id=begun.session_id)
                    return False
                case SetSnapshots.GONE:
                    return False
                case SetSnapshots.AHEAD | SetSnapshots.CHANGED:
                    await asyncio.sleep(_AHEAD_SECONDS)
                case never:
                    assert_never(never)
        _log.info("a snapshot is given up: its session changes all the time", session_id=begun.session_id)
        return False
