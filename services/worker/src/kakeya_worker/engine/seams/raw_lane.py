"""A lane's memory as raw numbers, from which contents are copied and into which they are put."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kakeya_worker.engine.seams.geometry import Integers
from kakeya_worker.engine.seams.raw_numbers import RawNumbers
from kakeya_worker.engine.seams.verifier import LaneContents, Memory


@dataclass(frozen=True)
class RawLane:
    """Views of what a backend's arrays hold: a write to them is a write to the lane.

    Attributes:
        keys: one a layer, each [kv_heads, slots, head_dim].
        values: as keys.
        final_hidden: [hidden].
    """

    keys: Sequence[RawNumbers]
    values: Sequence[RawNumbers]
    final_hidden: RawNumbers

    def read(self, slots: Integers, memory: Memory | None = None) -> LaneContents:
        """Copies what the slots hold, in their order; see `Verifier.read_lane`."""
        runs = slot_runs(slots)
        keys, values = copies = self._copies(len(slots), memory)
        for layers, copy in zip((self.keys, self.values), copies, strict=True):
            for held, layer in zip(layers, copy, strict=True):
                for tokens, run in runs:
                    layer[:, tokens] = held[:, run]
        return LaneContents(keys, values, self.final_hidden.copy())

    def write(self, slots: Integers, contents: LaneContents) -> None:
        """What `read` returned, here or in another worker.

        Raises:
            ValueError: it does not fit; nothing is written.
        """
        layers = slice(contents.first_layer, contents.first_layer + len(contents.keys))
        shape = (len(self.keys[layers]), *self._shape(len(slots))[1:])
        for raw in (contents.keys, contents.values):
            _check(raw, shape, self.keys[0].dtype)
        _check(contents.final_hidden, self.final_hidden.shape, self.final_hidden.dtype)
        runs = slot_runs(slots)
        for each, raw in ((self.keys, contents.keys), (self.values, contents.values)):
            for held, layer in zip(each[layers], raw, strict=True):
                for tokens, run in runs:
                    held[:, run] = layer[:, tokens]
        self.final_hidden[:] = contents.final_hidden

    def _copies(self, num_tokens: int, memory: Memory | None) -> RawNumbers:
        """Room for K and V: [2, layers, kv_heads, tokens, head_dim]."""
        shape, dtype = (2, *self._shape(num_tokens)), self.keys[0].dtype
        num_bytes = math.prod(shape) * dtype.itemsize
        if memory is None or memory.nbytes < num_bytes:
            return np.empty(shape, dtype)
        return memory[:num_bytes].view(dtype).reshape(shape)

    def _shape(self, num_tokens: int) -> tuple[int, ...]:
        """[layers, kv_heads, tokens, head_dim]"""
        num_heads, _, head_dim = self.keys[0].shape
        return len(self.keys), num_heads, num_tokens, head_dim


def slot_runs(slots: Integers) -> list[tuple[slice, slice]]:
    """Consecutive slots, of which a lane has few runs: where they are among these, and which they are.

    To copy run by run is as fast as memory.
    """
    if not len(slots):
        return []
    starts = [0, *(np.flatnonzero(np.diff(slots) != 1) + 1).tolist()]
    firsts = slots[starts].tolist()
    return [
        (slice(start, end), slice(first, first + end - start))
        for first, (start, end) in zip(firsts, pairwise([*starts, len(slots)]), strict=True)
    ]


def _check(raw: RawNumbers, shape: tuple[int, ...], dtype: np.dtype[np.unsignedinteger]) -> None:
    """Raises ValueError."""
    if raw.shape != shape or raw.dtype != dtype:
        raise ValueError(f"{raw.dtype} {raw.shape} is not {dtype} {shape}")
