"""The shape that all lanes of a worker share, in slots."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RING_MULTIPLE = 16  # slots; keys are summed in blocks of 16 in exact mode, so a ring holds whole blocks

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True)
class LaneGeometry:
    """One lane.

    Attributes:
        sink: sinks of a session that does not ask for another number.
        window: window of a session that does not ask for another one.
        chunk: C, the most tokens a row may bring in a step.
    """

    sink: int
    window: int
    chunk: int

    @property
    def capacity(self) -> int:
        """The most tokens that a session can keep: S + W, divided as it likes."""
        return self.sink + self.window

    @property
    def num_slots(self) -> int:
        """Room for any division of the capacity: sinks, and a ring of whole blocks with its slack."""
        return self.capacity + self.chunk - 1 + RING_MULTIPLE - 1

    def num_ring_slots(self, window: int) -> int:
        """R >= W + C - 1, so that what a row overwrites is already invisible to its first query."""
        return -(-(window + self.chunk - 1) // RING_MULTIPLE) * RING_MULTIPLE
