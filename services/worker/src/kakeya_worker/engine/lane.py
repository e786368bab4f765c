"""A lane: one session's part of the slab, as integers.

The law (StreamingLLM's positions, arXiv 2309.17453): the token at index p sees
V(p) = { j <= p : j < S or j > p - W }. Sinks keep slots of their own; index j >= S lies in ring slot j mod R.
The ring has slack, R >= W + C - 1, so what a step of up to C tokens overwrites is already invisible to the
step's first query: nothing needs an undo.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kakeya_shared.errors import InvariantViolated

RING_MULTIPLE = 16  # slots; keys are summed in blocks of 16 in exact mode, so a ring holds whole blocks

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class LaneGeometry:
    """The one shape all lanes of a worker have.

    Attributes:
        sink: sink slots, the most sinks a session may ask for.
        window: the largest window a session may ask for.
        chunk: C, the most tokens a row may bring in a step.
    """

    sink: int
    window: int
    chunk: int

    @property
    def num_ring_slots(self) -> int:
        """R: window and slack, rounded up to whole blocks."""
        return -(-(self.window + self.chunk - 1) // RING_MULTIPLE) * RING_MULTIPLE

    @property
    def num_slots(self) -> int:
        return self.sink + self.num_ring_slots

    def slots(self, indices: Integers, sink: int) -> Integers:
        """The slots of tokens by history index, for a session of `sink` sinks; same shape as `indices`."""
        return np.where(indices < sink, indices, self.sink + indices % self.num_ring_slots)

    def ring_runs(self, first: int, end: int) -> tuple[slice, ...]:
        """The slots of tokens first..end-1 in their order (at most R of them, none a sink).

        One run, or two where the ring wraps between them; none for no tokens.
        """
        if first >= end:
            return ()
        start = self.sink + first % self.num_ring_slots
        num_until_wrap = min(end - first, self.num_slots - start)
        num_after_wrap = end - first - num_until_wrap
        runs = (slice(start, start + num_until_wrap),)
        return runs + (slice(self.sink, self.sink + num_after_wrap),) * (num_after_wrap > 0)


@dataclass(frozen=True)
class Row:
    """One session's tokens in a step; a backend derives slots, angles and masks from it.

    Attributes:
        lane: index in the slab.
        start: history index of the first token.
        token_ids: 1 to C of them.
        sink: the session's sinks.
        window: the session's window.
    """

    lane: int
    start: int
    token_ids: tuple[int, ...]
    sink: int
    window: int

    @property
    def end(self) -> int:
        """The history length after this row."""
        return self.start + len(self.token_ids)

    @property
    def num_sinks(self) -> int:
        """Sinks that the row sees."""
        return min(self.sink, self.end)

    @property
    def first_in_window(self) -> int:
        """The oldest token, sinks aside, that the row's first query sees."""
        return max(self.sink, self.start - self.window + 1)


@dataclass
class Lane:
    """One session's committed state: what its slots hold, and how long its history is.

    Attributes:
        index: in the slab.
        length: committed tokens, the session's history length.
        slot_indices: the history index that each slot holds, -1 where none; [num_slots].
        slot_token_ids: the token that each slot holds; [num_slots].
        prefill_seconds: of the appends since the last Generate.
    """

    geometry: LaneGeometry
    index: int
    sink: int
    window: int
    length: int = 0
    prefill_seconds: float = 0.0
    slot_indices: Integers = field(init=False, repr=False)
    slot_token_ids: Integers = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.slot_indices = np.full(self.geometry.num_slots, -1, dtype=np.int64)
        self.slot_token_ids = np.zeros(self.geometry.num_slots, dtype=np.int64)

    @property
    def num_live_slots(self) -> int:
        """Slots whose token is in V(length - 1), counted in the slots themselves."""
        held = self.slot_indices
        visible = (held < self.sink) | (held > self.length - 1 - self.window)
        return int(np.count_nonzero((held >= 0) & visible))

    @property
    def num_evicted(self) -> int:
        """Tokens that left the window so far."""
        return max(0, self.length - self.sink - self.window)

    def row(self, token_ids: tuple[int, ...]) -> Row:
        """The row that appends tokens to what is committed."""
        return Row(self.index, self.length, token_ids, self.sink, self.window)

    def commit(self, row: Row) -> None:
        """Advances the length over a row whose K and V are written.

        Raises:
            InvariantViolated: the row does not start where the lane ends (INV-2), or the live slots are not
                those the law demands (INV-1).
        """
        if row.start != self.length:
            raise violation(2, f"a row commits at {row.start}, the lane ends at {self.length}")
        indices = np.arange(row.start, row.end)
        slots = self.geometry.slots(indices, self.sink)
        self.slot_indices[slots] = indices
        self.slot_token_ids[slots] = row.token_ids
        self.length = row.end
        demanded = min(self.length, self.sink + self.window)
        if self.num_live_slots != demanded:
            raise violation(1, f"{self.num_live_slots} slots are live, the law demands {demanded}")


def violation(invariant: int, message: str) -> InvariantViolated:
    """The error for a violated invariant, INV-1 or INV-2."""
    return InvariantViolated(f"INV-{invariant}: {message}", metadata={"invariant": f"inv{invariant}"})
