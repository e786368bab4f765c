"""Snapshots: a session's lane and position, whole or since an earlier one, as values that go anywhere."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from kakeya_shared.errors.tree import SnapshotRefused
from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.seams.geometry import Booleans, Integers
from kakeya_worker.engine.seams.retention import Retention, are_in, indices
from kakeya_worker.engine.seams.verifier import LaneContents, Memory, ModelFacts, Verifier
from kakeya_worker.engine.snapshots.made_memory import made_memory

_LITTLE_BYTES = 1 << 22
# What a running operation may add until the copy is made.
_TOKENS_MEANWHILE = 16
_NO_SLOTS = np.empty(0, np.int64)

_Number = TypeVar("_Number", bound=np.generic)


@dataclass(frozen=True)
class Snapshot(ABC):
    """What a session kept at one length of its history, without what an earlier snapshot holds.

    Attributes:
        fingerprint: of the verifier that it was taken from.
        model_digest: of its model.
        sink: of the session's retention, as is `window`.
        start: the history length of the snapshot before, 0 where this one is whole.
        length: of the history.
        history_digest: see `kakeya_worker.engine.lanes.lane.Lane`.
        positions: history indices of what is in it, ascending; [tokens].
        token_ids: [tokens].
    """

    fingerprint: str
    model_digest: str
    sink: int
    window: int
    refuses_overflow: bool
    start: int
    length: int
    history_digest: int | None
    positions: Integers
    token_ids: Integers

    @abstractmethod
    def parts(self) -> Iterator[LaneContents]:
        """K and V of these tokens, some layers after others, and with each the final hidden vector of the last token.
        One is not to be used any more when the next is asked for.

        Raises:
            SnapshotRefused: it is damaged, which may turn out at the end.
        """


@dataclass(frozen=True)
class TakenSnapshot(Snapshot):
    """One in memory.

    Attributes:
        contents: all of it.
    """

    contents: LaneContents

    def parts(self) -> Iterator[LaneContents]:
        """See `Snapshot.parts`."""
        yield self.contents


def take(lane: Lane, verifier: Verifier, start: int = 0, memory: Memory | None = None) -> TakenSnapshot:
    """Copies what a lane keeps of its history from an index on. Nothing may write to the lane meanwhile.

    Args:
        memory: see `Verifier.read_lane`.
    """
    positions = lane.held(start)
    slots = lane.retention.slots(positions)
    return TakenSnapshot(
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
    """Memory for what `take` will copy; None: it is little. Any thread may ask."""
    num_bytes = (len(lane.held(start)) + _TOKENS_MEANWHILE) * kv_bytes_per_token
    return None if num_bytes < _LITTLE_BYTES else made_memory(num_bytes)


def restore(snapshots: Sequence[Snapshot], lane: Lane, verifier: Verifier, *, inexact: bool = False) -> None:
    """Makes an empty lane hold what a whole snapshot and all since do, less what was forgotten by the last.

    K and V go from each into the lane; they are never together elsewhere.

    Args:
        inexact: snapshots of other fingerprints of the model will do; their numbers become as the lane's.

    Raises:
        SnapshotRefused: they do not follow one another, are of another fingerprint, retention or shape, are damaged, or
            do not hold what is kept at the last one's length. The lane's slots may have been written to.
    """
    for snapshot in snapshots:
        _check_kind(snapshot, lane.retention)
        _check_kinship(snapshot, verifier.facts, inexact=inexact)
    _check_order(snapshots)
    last = snapshots[-1]
    retained = lane.retention.retained(last.length)
    are_kept = [are_in(snapshot.positions, retained) for snapshot in snapshots]
    positions = _kept([snapshot.positions for snapshot in snapshots], are_kept)
    if not np.array_equal(positions, indices(retained)):
        raise SnapshotRefused("it does not hold all that is kept at its length")
    try:
        for snapshot, kept in zip(snapshots, are_kept, strict=True):
            _write(snapshot, kept, lane, verifier)
    except ValueError as error:
        raise SnapshotRefused(f"it is not of this model: {error}") from error
    lane.restore(last.length, _kept([snapshot.token_ids for snapshot in snapshots], are_kept), last.history_digest)


def _check_kind(snapshot: Snapshot, retention: Retention) -> None:
    """Raises SnapshotRefused."""
    if (snapshot.sink, snapshot.window) != (retention.sink, retention.window):
        kept = f"{snapshot.sink} + {snapshot.window} tokens, not {retention.sink} + {retention.window}"
        raise SnapshotRefused(f"it keeps {kept}")


def _check_order(snapshots: Sequence[Snapshot]) -> None:
    """Raises SnapshotRefused."""
    length = 0
    for snapshot in snapshots:
        if snapshot.start != length:
            raise SnapshotRefused(f"a snapshot from {snapshot.start} on does not follow one up to {length}")
        length = snapshot.length


def _write(snapshot: Snapshot, are_kept: Booleans, lane: Lane, verifier: Verifier) -> None:
    """Raises ValueError or SnapshotRefused. What is kept are few runs; none is copied on its way, but to become of
    another type.
    """
    held = verifier.read_lane(lane.index, _NO_SLOTS)
    is_foreign = snapshot.fingerprint != verifier.facts.fingerprint
    runs = [(run, lane.retention.slots(snapshot.positions[run])) for run in _runs(are_kept)]
    num_layers = 0
    for part in snapshot.parts():
        num_layers += len(part.keys)
        for run, slots in runs:
            kept = replace(part, keys=part.keys[:, :, run], values=part.values[:, :, run])
            verifier.write_lane(lane.index, slots, kept.of_types(held) if is_foreign else kept)
    if num_layers != len(held.keys):
        raise ValueError(f"it has {num_layers} layers, not {len(held.keys)}")


def _check_kinship(snapshot: Snapshot, facts: ModelFacts, *, inexact: bool) -> None:
    """Raises SnapshotRefused: it is not to be gone on with under this fingerprint of this model.

    Shapes alone would not tell: another model's lane can have the same.
    """
    if snapshot.fingerprint == facts.fingerprint:
        return
    if not inexact:
        raise SnapshotRefused(f"it was computed under fingerprint {snapshot.fingerprint}, this is {facts.fingerprint}")
    if not facts.model_digest or snapshot.model_digest != facts.model_digest:
        raise SnapshotRefused(f"it is of a model with digest {snapshot.model_digest!r}, not {facts.model_digest!r}")


def _runs(are_kept: Booleans) -> list[slice]:
    """Where what is kept begins and ends, ascending."""
    framed = np.concatenate([[False], are_kept, [False]])
    edges = np.flatnonzero(framed[1:] != framed[:-1])
    return [slice(start, end) for start, end in edges.reshape(-1, 2).tolist()]


def _kept(parts: Sequence[NDArray[_Number]], are_kept: Sequence[Booleans]) -> NDArray[_Number]:
    return np.concatenate([part[kept] for part, kept in zip(parts, are_kept, strict=True)])
