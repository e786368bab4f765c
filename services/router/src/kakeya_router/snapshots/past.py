"""A session at a length that it had before: what it can be resumed from, without its lane."""

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_router.contract import refusals
from kakeya_router.snapshots import snapshot_plan
from kakeya_router.store.session_record import LaneState, SessionRecord
from kakeya_router.store.sessions import stored_snapshots
from kakeya_router.store.sessions.session_store import BYTES_PER_TOKEN, unpack
from kakeya_router.store.sessions.stored_snapshots import Snapshots
from kakeya_shared.contract.history_digest import EMPTY_HISTORY, extended_digest
from kakeya_shared.errors.tree import BoundaryNotReachable


def chains(record: SessionRecord, length: int) -> Sequence[Snapshots]:
    """Snapshots from which, with its journal, the session can be resumed at a length of its history; the newest first,
    and the last may be none at all.
    """
    return snapshot_plan.chains(snapshot_plan.of(record), record.journal_start, length)


def needed_store(record: SessionRecord, length: int) -> str:
    """The snapshot store that a worker has to read which has it at that length; empty: it is in the journal."""
    newest, *others = chains(record, length) or [()]
    if not newest or () in others:
        return ""
    return record.inherited_store if newest[-1] in stored_snapshots.parse(record.inherited) else record.snapshot_store


def is_reachable(record: SessionRecord, length: int) -> bool:
    return length <= record.journal_length and bool(chains(record, length))


def not_reachable(record: SessionRecord, length: int) -> BoundaryNotReachable:
    """Lists what is: the ends of the last turns, where the last answer began, and the present end."""
    lengths = {*record.turn_boundaries, record.operation_start} - {0}
    known = {each for each in lengths if is_reachable(record, each)}
    return refusals.boundary_not_reachable(length, sorted((known | {record.journal_length}) - {length}))


@dataclass(frozen=True, slots=True)
class Past:
    """What is there of it, as of one moment: whatever the session does then, these are its tokens.

    Attributes:
        record: of the session at that moment.
        length: the one to resume it at.
        journaled: its packed tokens before that, from the record's `journal_start` on.
        digest: of its history there; None: not known.
    """

    record: SessionRecord
    length: int
    journaled: bytes
    digest: int | None = None

    def chains(self, snapshot_store: str) -> Sequence[Snapshots]:
        """As `chains` says, those that a worker with this snapshot store reads."""
        readable = snapshot_plan.in_store(self.record, snapshot_store)
        return snapshot_plan.chains(readable, self.record.journal_start, self.length)

    def start_length(self, snapshot_store: str) -> int:
        """Where the prefill begins that it costs such a worker. Of a damaged snapshot nobody knows yet."""
        newest = next(iter(self.chains(snapshot_store)), ())
        return newest[-1].length if newest else 0

    def token_ids(self, start: int, end: int) -> list[int]:
        """Those start..end-1 of the history; less where the journal does not hold them all."""
        first = self.record.journal_start
        if start < first:
            return []
        return unpack(self.journaled[BYTES_PER_TOKEN * (start - first) : BYTES_PER_TOKEN * (end - first)])

    @property
    def is_damaged(self) -> bool:
        """Whether its journal is not what was written into it, as far as that can be told."""
        first = self.record.journal_start
        at_start = EMPTY_HISTORY if first == 0 else self.record.digest_at(first)
        token_ids = unpack(self.journaled)
        if len(token_ids) != max(0, self.length - first):
            return True
        return None not in (at_start, self.digest) and extended_digest(at_start or 0, token_ids) != self.digest

    def continues(self, lane: LaneState) -> bool:
        """Whether its history is what the lane holds and then the journal, as far as that can be told."""
        token_ids = self.token_ids(lane.history_length, self.length)
        if lane.history_length + len(token_ids) != self.length:
            return False
        if self.digest is None or lane.history_digest is None:
            return not token_ids or not self.is_damaged
        return extended_digest(lane.history_digest, token_ids) == self.digest

    @property
    def needed(self) -> str:
        """What the session must still have when another one inherits this; as reserve_session.lua reads it."""
        record = self.record
        return f"{record.journal_start}|{record.num_rewinds}|{record.inherited}|{record.snapshots}"
