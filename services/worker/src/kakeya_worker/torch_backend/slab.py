"""The slab: all KV of a worker, allocated once."""

import ctypes
import mmap
import sys

import torch
from torch import Tensor

from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.raw_lane import RawLane
from kakeya_worker.engine.seams.raw_numbers import RawNumbers
from kakeya_worker.torch_backend.numerics import KvType

_LARGE_LANE_BYTES = 4 << 20
"""A smaller lane may hold no whole page of 2 MiB."""
_MADV_HUGEPAGE, _MADV_NOHUGEPAGE = 14, 15  # linux/mman.h
_MADV_POPULATE_WRITE = 23  # linux/mman.h, since Linux 5.14
_POISON = 0xFF  # a bfloat16 of such bytes is not a number
_RAW = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32}


class Slab:
    """K and V of every lane, and each lane's final hidden vector.

    A lane is one stretch of memory: its keys, layer by layer, and then its values. Its slots are contiguous for each
    head: sinks first, then the ring.

    Attributes:
        keys: rotated at their own index, one view a layer, each [lanes, kv_heads, slots, slot].
        values: as keys.
        final_hidden: after the last norm, of each lane's last token; [lanes, hidden].
    """

    def __init__(
        self,
        geometry: LaneGeometry,
        num_lanes: int,
        *,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        hidden_size: int,
        kv_type: KvType,
        hidden_dtype: torch.dtype,
    ) -> None:
        self.geometry = geometry
        shape = (num_lanes, 2, num_layers, num_kv_heads, geometry.num_slots, kv_type.slot_size(head_dim))
        # Not zeroed: the memory is the worker's only when a lane first writes it, and no stale slot is ever read.
        self._lanes = torch.empty(shape, dtype=kv_type.dtype)
        _advise(self._lanes, _MADV_NOHUGEPAGE)  # where a system gives such unasked, a lane's would reach its neighbours
        self.keys, self.values = (list(self._lanes[:, part].unbind(1)) for part in range(2))
        self.final_hidden = torch.empty((num_lanes, hidden_size), dtype=hidden_dtype)
        # Views that are made once: a restore asks for its lane several times, and a model has dozens of layers.
        self._raw_keys, self._raw_values = ([_raw(tensor) for tensor in each] for each in (self.keys, self.values))
        self._raw_final_hidden = _raw(self.final_hidden)

    @property
    def lane_bytes(self) -> int:
        """K and V of a lane: from one lane to the next."""
        return self._lanes[0].nbytes

    def populate_lane(self, lane: int) -> None:
        """Has the pages of a lane made, whatever it holds; any thread may ask.

        Those of a large lane that are not there yet are huge ones, but for its two ends: none is shared with a
        neighbour that is not used.
        """
        if self.lane_bytes >= _LARGE_LANE_BYTES:
            ask_for_huge_pages(self._lanes[lane])
        populate(self._lanes[lane])

    def copy_lane(self, source: int, target: int, num_slots: int) -> None:
        """Copies the first slots of a lane, and its final hidden vector. Memory beyond them stays untouched."""
        self._lanes[target, ..., :num_slots, :] = self._lanes[source, ..., :num_slots, :]
        self.final_hidden[target] = self.final_hidden[source]

    def poison(self) -> None:
        """Fills everything with NaN; slots of integers get a scale that is none."""
        self._lanes.fill_(_POISON if self._lanes.dtype is torch.uint8 else torch.nan)
        self.final_hidden.fill_(torch.nan)

    def raw_lane(self, lane: int) -> RawLane:
        """The same memory."""
        keys, values = ([raw[lane] for raw in each] for each in (self._raw_keys, self._raw_values))
        return RawLane(keys, values, self._raw_final_hidden[lane])


def _raw(tensor: Tensor) -> RawNumbers:
    """The same memory."""
    raw: RawNumbers = tensor.view(_RAW[tensor.dtype.itemsize]).numpy()
    return raw


def populate(tensor: Tensor) -> bool:
    """Has the pages of a contiguous tensor made before they are written to, whatever is in it.

    No lock is held meanwhile, Python's neither. False where the system does not know how.
    """
    return _advise(tensor, _MADV_POPULATE_WRITE)


def ask_for_huge_pages(tensor: Tensor) -> bool:
    """Has a contiguous tensor lie in huge pages: what attention fetches ahead crosses no ends of small ones.

    To be called before it is written to. False where the system does not know how.
    """
    return _advise(tensor, _MADV_HUGEPAGE)


def _advise(tensor: Tensor, advice: int) -> bool:
    if sys.platform != "linux":
        return False
    start = tensor.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
    end = tensor.data_ptr() + tensor.nbytes
    madvise = ctypes.CDLL(None).madvise
    return bool(madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), ctypes.c_int(advice)) == 0)
