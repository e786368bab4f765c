"""A lane: one session's part of the slab, as integers."""

from dataclasses import dataclass, field

import numpy as np

from kakeya_shared.contract.history_digest import EMPTY_HISTORY, extended_digest
from kakeya_shared.errors.tree import HistoryLengthMismatch, InvariantViolated
from kakeya_worker.engine.seams.geometry import Integers, LaneGeometry
from kakeya_worker.engine.seams.retention import Retention, indices
from kakeya_worker.engine.seams.row import Row


@dataclass
class Lane:
    """One session's committed state: what its slots hold, and how long its history is.

    Attributes:
        index: in the slab.
        retention: what the session keeps.
        refuses_overflow: the history may not outgrow what is kept.
        length: committed tokens, the session's history length.
        num_live_slots: slots whose token is in V(length - 1), as they were counted after the latest change.
        prefill_seconds: of the appends since the last Generate.
        slot_indices: the history index that each slot holds, -1 where none; [num_slots].
        slot_token_ids: the token that each slot holds; [num_slots].
        history_digest: of all tokens so far; see `kakeya_shared.contract.history_digest`. None: not known, since the
            lane began with a snapshot that does not say it.
        num_rewinds: how often it was rewound.
        speculation: as the session asks for; see `SessionOptions`.
    """

    geometry: LaneGeometry
    index: int
    retention: Retention
    refuses_overflow: bool = False
    length: int = 0
    num_live_slots: int = 0
    prefill_seconds: float = 0.0
    slot_indices: Integers = field(init=False, repr=False)
    slot_token_ids: Integers = field(init=False, repr=False)
    history_digest: int | None = EMPTY_HISTORY
    num_rewinds: int = 0
    speculation: str = ""

    def __post_init__(self) -> None:
        self.slot_indices = np.full(self.geometry.num_slots, -1, dtype=np.int64)
        self.slot_token_ids = np.zeros(self.geometry.num_slots, dtype=np.int64)

    def _count_live_slots(self) -> int:
        """In the slots themselves."""
        held = self.slot_indices
        visible = self.retention.visible(np.array(self.length - 1), held)
        return int(np.count_nonzero((held >= 0) & visible))

    @property
    def retained(self) -> tuple[range, ...]:
        """The part of the history that is kept."""
        return self.retention.retained(self.length)

    @property
    def num_evicted(self) -> int:
        """Tokens that were forgotten so far."""
        return self.length - sum(map(len, self.retained))

    @property
    def room(self) -> int | None:
        """Tokens that still fit; None where the oldest make room."""
        return self.retention.capacity - self.length if self.refuses_overflow else None

    def num_seen(self, num_tokens: int) -> int:
        """Slots that the last of so many more tokens would see."""
        return sum(map(len, self.retention.retained(self.length + num_tokens)))

    @property
    def num_used_slots(self) -> int:
        """The first slots, beyond which none was ever committed to."""
        used = np.flatnonzero(self.slot_indices >= 0)
        return int(used[-1]) + 1 if used.size else 0

    def fork(self, index: int, speculation: str = "") -> "Lane":
        """A lane of the same history at another place in the slab; what its slots hold is for the verifier to copy.

        Args:
            speculation: of the new session; empty: the same.
        """
        lane = Lane(self.geometry, index, self.retention, self.refuses_overflow, self.length, self.num_live_slots)
        lane.slot_indices[:] = self.slot_indices
        lane.slot_token_ids[:] = self.slot_token_ids
        lane.history_digest = self.history_digest
        lane.speculation = speculation or self.speculation
        return lane

    def held(self, start: int = 0) -> Integers:
        """The history indices of what is kept, ascending, from one on."""
        return indices(self.retained, start)

    @property
    def held_token_ids(self) -> list[int]:
        """The tokens that are kept, ascending by history index."""
        token_ids: list[int] = self.slot_token_ids[self.retention.slots(self.held())].tolist()
        return token_ids

    def restore(self, length: int, token_ids: Integers, history_digest: int | None) -> None:
        """Makes this lane, of an empty history, hold what is kept of another; its K and V are for the verifier.

        Args:
            token_ids: of what is kept, ascending by history index.
        """
        self.length = length
        positions = self.held()
        slots = self.retention.slots(positions)
        self.slot_indices[slots] = positions
        self.slot_token_ids[slots] = token_ids
        self.history_digest = history_digest
        self.num_live_slots = self._count_live_slots()

    def rewind(self, length: int) -> None:
        """Takes the last tokens back; only while all tokens are kept, since the others could not come back.

        What the slots held beyond the length is stale. The final hidden vector is still the old last token's.
        """
        token_ids = self.slot_token_ids[self.retention.slots(np.arange(length))]
        self.slot_indices[self.slot_indices >= length] = -1
        self.history_digest = extended_digest(EMPTY_HISTORY, token_ids.tolist())
        self.length = length
        self.num_live_slots = self._count_live_slots()

    def check_history(self, length: int, digest: int | None) -> None:
        """Raises HistoryLengthMismatch: the lane holds another history than the caller has on record.

        Args:
            digest: of it; None: not known.
        """
        if self.length != length:
            raise HistoryLengthMismatch(f"the lane has {self.length} tokens, not {length}")
        if None not in (digest, self.history_digest) and digest != self.history_digest:
            raise HistoryLengthMismatch(f"the {length} tokens in the lane are others than those on record")

    def row(self, token_ids: tuple[int, ...], *, is_scored: bool = False) -> Row:
        """The row that appends tokens to what is committed."""
        return Row(self.index, self.length, token_ids, self.retention, is_scored)

    def commit(self, row: Row) -> None:
        """Advances the length over a row whose K and V are written.

        Raises:
            InvariantViolated: the row does not start where the lane ends (INV-2), or the live slots are not
                those the law demands (INV-1).
        """
        if row.start != self.length:
            raise violation(2, f"a row commits at {row.start}, the lane ends at {self.length}")
        slots = self.retention.slots(row.positions)
        self.slot_indices[slots] = row.positions
        self.slot_token_ids[slots] = row.token_ids
        if self.history_digest is not None:
            self.history_digest = extended_digest(self.history_digest, row.token_ids)
        self.length = row.end
        self.num_live_slots = self._count_live_slots()
        demanded = sum(map(len, self.retained))
        if self.num_live_slots != demanded:
            raise violation(1, f"{self.num_live_slots} slots are live, the law demands {demanded}")


def violation(invariant: int, message: str) -> InvariantViolated:
    """The error for a violated invariant, INV-1 or INV-2."""
    return InvariantViolated(f"INV-{invariant}: {message}", metadata={"invariant": f"inv{invariant}"})
