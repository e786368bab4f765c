"""Which snapshots of a session are worth keeping, and how much of its journal: integers only.

A snapshot is whole (start 0), or holds what came since another one that ends where it starts.
"""

from collections.abc import Sequence

from kakeya_router.store.session_record import SessionRecord
from kakeya_router.store.sessions.stored_snapshots import Snapshots, parse

# As many files as a restore should have to read at most.
_LONGEST_CHAIN = 32


def of(record: SessionRecord) -> Snapshots:
    """All from which a session can be resumed, those that it has inherited first, which none of its own follows."""
    return parse(record.inherited) + parse(record.snapshots)


def own(record: SessionRecord, snapshot_store: str) -> Snapshots:
    """Those of its own, if they are in this snapshot store: new ones there can follow them."""
    return parse(record.snapshots) if record.snapshot_store == snapshot_store else ()


def in_store(record: SessionRecord, snapshot_store: str) -> Snapshots:
    """Those of all that are in a snapshot store."""
    inherited = parse(record.inherited) if record.inherited_store == snapshot_store else ()
    return inherited + own(record, snapshot_store)


def newest_length(record: SessionRecord, snapshot_store: str) -> int:
    """The history length up to which a snapshot store has the session; 0: it has nothing of it."""
    return max((each.length for each in in_store(record, snapshot_store)), default=0)


def chain(snapshots: Snapshots, length: int) -> Snapshots:
    """The files that together hold the session at the greatest length up to this one; none where there is no such."""
    by_length = {each.length: each for each in snapshots}
    for last in reversed(snapshots):
        if last.length > length:
            continue
        found = [last]
        while found[0].start and found[0].start in by_length:
            found.insert(0, by_length[found[0].start])
        if not found[0].start:
            return tuple(found)
    return ()


def chains(snapshots: Snapshots, journal_start: int, length: int) -> list[Snapshots]:
    """From which the session can be resumed at a length, with its journal, which begins there; the newest first,
    and the last may be none at all.
    """
    found = []
    for last in reversed(snapshots):
        if last.length == length or journal_start <= last.length < length:
            each = chain(snapshots, last.length)
            if each and each[-1] is last:
                found.append(each)
    if journal_start == 0:
        found.append(())
    return found


def next_start(snapshots: Snapshots, length: int, num_kept: int) -> int:
    """Where the next snapshot is to start: at the newest one, or at 0 once a whole one costs no more than what came
    since the last whole one.

    Args:
        length: of the history that it is to hold.
        num_kept: tokens that a session keeps, and a whole snapshot holds.
    """
    if not snapshots:
        return 0
    newest = chain(snapshots, snapshots[-1].length)
    if not newest or len(newest) >= _LONGEST_CHAIN or length - newest[0].length >= num_kept:
        return 0
    return newest[-1].length


def kept(snapshots: Snapshots, boundaries: Sequence[int]) -> Snapshots:
    """Those from which the session can be resumed at its two newest snapshots, and at or before each boundary."""
    wanted = [each.length for each in snapshots[-2:]] + list(boundaries)
    needed = {each for length in wanted for each in chain(snapshots, length)}
    return tuple(each for each in snapshots if each in needed)


def journal_start(snapshots: Snapshots, boundaries: Sequence[int]) -> int:
    """The history index from which on tokens are needed: beyond the second-newest snapshot, and beyond the one before
    each boundary that has none of its own. Should the newest file be damaged, nothing is lost.
    """
    starts = [snapshots[-2].length if len(snapshots) > 1 else 0]
    for boundary in boundaries:
        before = chain(snapshots, boundary)
        length = before[-1].length if before else 0
        if length != boundary:
            starts.append(length)
    return min(starts)
