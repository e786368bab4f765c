"""A row's keys in blocks of 16 that are aligned on absolute position, sinks first, ascending.

Never in the order of the ring, which depends on its slack.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.seams.geometry import Booleans, Integers
from kakeya_worker.engine.seams.row import Row

BLOCK = 16


@dataclass(frozen=True)
class KeyBlocks:
    """The places of a row's blocks; some hold none of its keys.

    Attributes:
        slots: of the key in each place, 0 where there is none; [places].
        is_present: whether a place holds a key; [places].
        num_sinks: how many of the places are in blocks of sinks, which come first.
        visible: [queries, places].
    """

    slots: Integers
    is_present: Booleans
    num_sinks: int
    visible: Booleans

    @property
    def num_blocks(self) -> int:
        return len(self.slots) // BLOCK

    @property
    def visible_bits(self) -> NDArray[np.uint16]:
        """A bit for each place of a block, the first the lowest; [queries, blocks]."""
        return np.packbits(self.visible, axis=-1, bitorder="little").view("<u2")


def of(row: Row) -> KeyBlocks:
    """Lays a row's keys out."""
    sinks, recent = _whole_blocks(row.sinks), _whole_blocks(row.recent)
    indices = np.concatenate([sinks, recent])
    is_present = np.concatenate([sinks < row.sinks.stop, (recent >= row.recent.start) & (recent < row.recent.stop)])
    return KeyBlocks(
        slots=np.where(is_present, row.retention.slots(indices), 0),
        is_present=is_present,
        num_sinks=len(sinks),
        visible=row.retention.visible(row.positions[:, None], indices) & is_present,
    )


def _whole_blocks(keys: range) -> Integers:
    """The history indices of the blocks that hold the keys."""
    if not keys:
        return np.arange(0)
    return np.arange(keys.start // BLOCK * BLOCK, -(-keys.stop // BLOCK) * BLOCK)
