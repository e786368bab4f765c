"""Snapshots: a session's lane and position, whole or since an earlier one, as values that go anywhere."""

import mmap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from kakeya_shared.errors import SnapshotRefused
from kakeya_worker.engine.geometry import Booleans, Integers
from kakeya_worker.engine.lane import Lane
from kakeya_worker.engine.retention import Retention, are_in, indices
from kakeya_worker.engine.verifier import LaneContents, Memory, Verifier

_LITTLE_BYTES = 1 << 22
# What a running operation may add until the copy is made.
_TOKENS_MEANWHILE = 16
_NO_SLOTS = np.empty(0, np.int64)

_Number = TypeVar("_Number", bound=np.generic)


@dataclass(frozen=True)
class Snapshot:
    """What a session kept at one length of its history, without what an earlier snapshot holds.

    Attributes:
        fingerprint: of the verifier that it was taken from.
        model_digest: of its model.
        sink: of the session's retention, as is `window`.
        start: the history length of the snapshot before, 0 where this one is whole.
        length: of the history.
        history_digest: of all tokens; see `kakeya_worker.engine.lane.extended_digest`.
        positions: history indices of what is in it, ascending; [tokens].
        token_ids: [tokens].
        contents: K and V of these tokens, and the final hidden vector of the last.
    """

    fingerprint: str
    model_digest: str
    sink: int
    window: int
    refuses_overflow: bool
    start: int
    length: int
    history_digest: bytes
    positions: Integers
    token_ids: Integers
    contents: LaneContents


def take(lane: Lane, verifier: Verifier, start: int = 0, memory: Memory | None = None) -> Snapshot:
    """Copies what a lane keeps of its history from an index on. Nothing may write to the lane meanwhile.

    Args:
        memory: see `Verifier.read_lane`.
    """
    positions = lane.held(start)
    slots = lane.retention.slots(positions)
    return Snapshot(
        fingerprint=verifier.facts.fingerprint,
        model_digest=verifier.facts.model_digest,
        sink=lane.retention.sink,
        window=lane.retention.window,
        refuses_overflow=lane.refuses_overflow,
        start=start,
        length=lane.length,
        history_digest=lane.history_digest,
        positions=positions,
        token_ids=lane.slot_token_ids[slots],
        contents=verifier.read_lane(lane.index, slots, memory),
    )


def memory_for(lane: Lane, kv_bytes_per_token: int, start: int = 0) -> Memory | None:
    """Memory for what `take` will copy; None: it is little. Any thread may ask.

    Its pages are there then: to have them made can take longer than the copy, and all steps would wait for that.
    """
    num_bytes = (len(lane.held(start)) + _TOKENS_MEANWHILE) * kv_bytes_per_token
    if num_bytes < _LITTLE_BYTES:
        return None
    memory = np.empty(num_bytes, np.uint8)
    memory[:: mmap.PAGESIZE] = 0
    return memory


def joined(snapshots: Sequence[Snapshot], retention: Retention, *, inexact: bool = False) -> Snapshot:
    """The whole snapshot that one and all since it make, less what was forgotten by the last.

    Args:
        retention: of the session.
        inexact: they may be of several fingerprints of one model; the numbers become as the last's.

    Raises:
        SnapshotRefused: they do not follow one another, or are of different sessions' kinds.
    """
    last, length = snapshots[-1], 0
    for snapshot in snapshots:
        if snapshot.start != length:
            raise SnapshotRefused(f"a snapshot from {snapshot.start} on does not follow one up to {length}")
        if (snapshot.sink, snapshot.window) != (last.sink, last.window):
            raise SnapshotRefused("snapshots of different windows do not belong together")
        _check_kinship(snapshot, last.fingerprint, last.model_digest, inexact=inexact)
        length = snapshot.length
    retained = retention.retained(last.length)
    kept = [_runs(are_in(snapshot.positions, retained)) for snapshot in snapshots]
    contents = [snapshot.contents.of_types(last.contents) for snapshot in snapshots]
    return replace(
        last,
        start=0,
        positions=_joined([snapshot.positions for snapshot in snapshots], kept),
        token_ids=_joined([snapshot.token_ids for snapshot in snapshots], kept),
        contents=LaneContents(
            _joined([each.keys for each in contents], kept, axis=2),
            _joined([each.values for each in contents], kept, axis=2),
            last.contents.final_hidden,
        ),
    )


def restore(snapshot: Snapshot, lane: Lane, verifier: Verifier, *, inexact: bool = False) -> None:
    """Makes an empty lane of the same retention hold what a whole snapshot does.

    Args:
        inexact: a snapshot of another fingerprint of the model will do; its numbers become as the lane's.

    Raises:
        SnapshotRefused: it is of another fingerprint, model, retention or shape, or does not hold what is kept at its
            length.
    """
    facts, retention, contents = verifier.facts, lane.retention, snapshot.contents
    _check_kinship(snapshot, facts.fingerprint, facts.model_digest, inexact=inexact)
    if snapshot.fingerprint != facts.fingerprint:
        contents = contents.of_types(verifier.read_lane(lane.index, _NO_SLOTS))
    if (snapshot.sink, snapshot.window) != (retention.sink, retention.window):
        kept = f"{snapshot.sink} + {snapshot.window} tokens, not {retention.sink} + {retention.window}"
        raise SnapshotRefused(f"it keeps {kept}")
    if snapshot.start or not np.array_equal(snapshot.positions, indices(retention.retained(snapshot.length))):
        raise SnapshotRefused("it does not hold all that is kept at its length")
    try:
        verifier.write_lane(lane.index, retention.slots(snapshot.positions), contents)
    except ValueError as error:
        raise SnapshotRefused(f"it is not of this model: {error}") from error
    lane.restore(snapshot.length, snapshot.token_ids, snapshot.history_digest)


def _check_kinship(snapshot: Snapshot, fingerprint: str, model_digest: str, *, inexact: bool) -> None:
    """Raises SnapshotRefused: it is not to be gone on with under this fingerprint of this model.

    Shapes alone would not tell: another model's lane can have the same.
    """
    if snapshot.fingerprint == fingerprint:
        return
    if not inexact:
        raise SnapshotRefused(f"it was computed under fingerprint {snapshot.fingerprint}, this is {fingerprint}")
    if not model_digest or snapshot.model_digest != model_digest:
        raise SnapshotRefused(f"it is of a model with digest {snapshot.model_digest!r}, this is {model_digest!r}")


def _runs(are_kept: Booleans) -> list[slice]:
    """Where what is kept begins and ends, ascending."""
    edges = np.flatnonzero(np.diff(are_kept, prepend=False, append=False))
    return [slice(start, end) for start, end in edges.reshape(-1, 2).tolist()]


def _joined(parts: Sequence[NDArray[_Number]], kept: Sequence[list[slice]], axis: int = 0) -> NDArray[_Number]:
    """What is kept of each; `axis` is that of the tokens. Nothing is copied where one run is all there is."""
    before = (slice(None),) * axis
    pieces = [part[(*before, run)] for part, runs in zip(parts, kept, strict=True) for run in runs]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces or [parts[0][(*before, slice(0))]], axis)
