"""A lane with what is left of a history: the newest chain of snapshots that is whole, and the journal after it."""

from dataclasses import dataclass

import structlog

from kakeya_router.contract.lanes import Opened
from kakeya_router.snapshots.past import Past
from kakeya_router.store.session_record import SessionRecord
from kakeya_router.store.sessions.stored_snapshots import StoredSnapshot
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_shared.errors.tree import SnapshotRefused, SnapshotStoreUnavailable
from kakeya_shared.rpc import tracing

_log = structlog.get_logger()

# A snapshot is read and checked before its lane is there.
RESTORE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Restored:
    """What came of it.

    Attributes:
        opened: the lane, which the rest of the journal is to be prefilled into; None: there is none.
        unusable: snapshots that could not be read, or do not make the history.
        is_damaged: what was read, and the journal, do not make it.
        is_puzzling: a lane had another length than its snapshots say: what that worker holds is not known.
        is_unread: this worker could not read snapshots that may be sound: another one may, or this one later.
    """

    opened: Opened | None
    unusable: frozenset[StoredSnapshot]
    is_damaged: bool
    is_puzzling: bool
    is_unread: bool


async def restored(workers: WorkerClients, record: SessionRecord, past: Past, snapshot_store: str) -> Restored:
    """Opens the lane of a record, for a session that is resumed or a fork that begins with another's history.

    Args:
        past: the history that it is to have.
        snapshot_store: of the record's worker.

    Raises:
        WorkerError, KakeyaError
    """
    with tracing.part("restore", worker_id=record.worker_id, epoch=record.epoch):
        what = await _restored(workers, record, past, snapshot_store)
        if what.opened is not None:
            tracing.annotate(history_length=what.opened.lane.history_length)
    return what


async def _restored(workers: WorkerClients, record: SessionRecord, past: Past, snapshot_store: str) -> Restored:
    client, unusable = workers.at(record.address), set[StoredSnapshot]()
    is_damaged = is_puzzling = is_unread = False
    for chain in past.chains(snapshot_store):
        try:
            opened = await client.restore_session(record, [each.name for each in chain], RESTORE_SECONDS)
        except (SnapshotRefused, SnapshotStoreUnavailable) as error:
            _log.warning("a snapshot cannot be used", session_id=past.record.session_id, error=error.message)
            unusable.update(chain)
            is_unread = is_unread or isinstance(error, SnapshotStoreUnavailable)
            continue
        is_as_long = opened.lane.history_length == (chain[-1].length if chain else 0)
        if is_as_long and past.continues(opened.lane):
            return Restored(opened, frozenset(unusable.difference(chain)), is_damaged, is_puzzling, is_unread)
        await client.close_session(record, RESTORE_SECONDS)
        unusable.update(chain)
        is_damaged, is_puzzling = True, is_puzzling or not is_as_long
        _log.error(
            "snapshots and journal do not make the session's history",
            session_id=past.record.session_id,
            lane_length=opened.lane.history_length,
            journal_start=past.record.journal_start,
            journal_length=past.length,
        )
    return Restored(None, frozenset(unusable), is_damaged, is_puzzling, is_unread)
