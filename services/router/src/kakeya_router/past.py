"""A session at a length that it had before: where that can be had from, without its lane."""

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_router import refusals, snapshot_plan
from kakeya_router.snapshot_plan import Snapshots
from kakeya_router.store.packed_tokens import BYTES_PER_TOKEN, unpack
from kakeya_router.store.records import SessionRecord
from kakeya_shared.errors import BoundaryNotReachable


def chains(record: SessionRecord, length: int) -> Sequence[Snapshots]:
    """The snapshots from which, with its journal, the session can be had at a length of its history; the newest first,
    and the last may be none at all.
    """
    return snapshot_plan.chains(snapshot_plan.parse(record.snapshots), record.journal_start, length)


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
        length: the one that it is to be had at.
        journaled: its packed tokens before that, from the record's `journal_start` on.
    """

    record: SessionRecord
    length: int
    journaled: bytes

    def chains(self, snapshot_store: str) -> Sequence[Snapshots]:
        """As `chains` says, those that a worker with this snapshot store reads."""
        readable = snapshot_store == self.record.snapshot_store
        return [chain for chain in chains(self.record, self.length) if readable or not chain]

    def start_length(self, snapshot_store: str) -> int:
        """Where the prefill begins that it costs such a worker. Of a damaged snapshot nobody knows yet."""
        newest = next(iter(self.chains(snapshot_store)), ())
        return newest[-1].length if newest else 0

    def token_ids(self, start: int, end: int) -> list[int]:
        """Those start..end-1 of the history, which are journaled."""
        first = self.record.journal_start
        return unpack(self.journaled[BYTES_PER_TOKEN * (start - first) : BYTES_PER_TOKEN * (end - first)])

    @property
    def journal(self) -> tuple[int, bytes]:
        """What the journal of a session that begins like this begins with: all, or nothing. Without the first tokens
        it would be of no use, since the snapshots go with the session that they are of.
        """
        return (0, self.journaled) if self.record.journal_start == 0 else (self.length, b"")
