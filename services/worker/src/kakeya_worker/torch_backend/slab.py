"""The slab: all KV of a worker, allocated once."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kakeya_worker.engine.geometry import Integers, LaneGeometry
from kakeya_worker.engine.verifier import LaneContents, Memory, RawNumbers

_RAW: dict[int, tuple[torch.dtype, type[np.unsignedinteger[Any]]]] = {
    2: (torch.uint16, np.uint16),
    4: (torch.uint32, np.uint32),
}


class Slab:
    """K and V of every lane, layer by layer, and each lane's final hidden vector.

    A lane's slots are contiguous for each head: sinks first, then the ring.

    Attributes:
        keys: rotated at their own index, one tensor a layer, each [lanes, kv_heads, slots, head_dim].
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
        kv_dtype: torch.dtype,
        hidden_dtype: torch.dtype,
    ) -> None:
        self.geometry = geometry
        shape = (num_lanes, num_kv_heads, geometry.num_slots, head_dim)
        # Not zeroed: the memory is the worker's only when a lane first writes it, and no stale slot is ever read.
        self.keys = [torch.empty(shape, dtype=kv_dtype) for _ in range(num_layers)]
        self.values = [torch.empty(shape, dtype=kv_dtype) for _ in range(num_layers)]
        self.final_hidden = torch.empty((num_lanes, hidden_size), dtype=hidden_dtype)

    def copy_lane(self, source: int, target: int, num_slots: int) -> None:
        """Copies the first slots of a lane, and its final hidden vector. Memory beyond them stays untouched."""
        for tensor in (*self.keys, *self.values):
            tensor[target, :, :num_slots] = tensor[source, :, :num_slots]
        self.final_hidden[target] = self.final_hidden[source]

    def read_lane(self, lane: int, slots: Integers, memory: Memory | None = None) -> LaneContents:
        """Copies what the slots hold, in their order; no step runs meanwhile."""
        runs = _runs(slots)
        keys, values = copies = self._copies(len(slots), memory)
        for tensors, copy in zip((self.keys, self.values), copies, strict=True):
            for tensor, layer in zip(tensors, copy, strict=True):
                held = _raw(tensor[lane])
                for tokens, run in runs:
                    layer[:, tokens] = held[:, run]
        return LaneContents(keys, values, _raw(self.final_hidden[lane]).copy())

    def write_lane(self, lane: int, slots: Integers, contents: LaneContents) -> None:
        """What `read_lane` returned, here or of another worker's slab. Raises ValueError where it does not fit."""
        for raw in (contents.keys, contents.values):
            _check(raw, self._shape(len(slots)), self.keys[0].dtype)
        _check(contents.final_hidden, self.final_hidden.shape[1:], self.final_hidden.dtype)
        runs = _runs(slots)
        for tensors, raw in ((self.keys, contents.keys), (self.values, contents.values)):
            for tensor, layer in zip(tensors, raw, strict=True):
                held = _raw(tensor[lane])
                for tokens, run in runs:
                    held[:, run] = layer[:, tokens]
        _raw(self.final_hidden[lane])[:] = contents.final_hidden

    def _copies(self, num_tokens: int, memory: Memory | None) -> RawNumbers:
        """Room for K and V: [2, layers, kv_heads, tokens, head_dim]."""
        shape, dtype = (2, *self._shape(num_tokens)), np.dtype(_RAW[self.keys[0].dtype.itemsize][1])
        num_bytes = math.prod(shape) * dtype.itemsize
        if memory is None or memory.nbytes < num_bytes:
            return np.empty(shape, dtype)
        return memory[:num_bytes].view(dtype).reshape(shape)

    def _shape(self, num_tokens: int) -> tuple[int, ...]:
        """[layers, kv_heads, tokens, head_dim]"""
        _, num_heads, _, head_dim = self.keys[0].shape
        return len(self.keys), num_heads, num_tokens, head_dim


def _runs(slots: Integers) -> list[tuple[slice, slice]]:
    """Consecutive slots, of which a lane has few runs: where they are among these, and which they are.

    To copy run by run is as fast as memory.
    """
    starts = [0, *(np.flatnonzero(np.diff(slots) != 1) + 1).tolist(), len(slots)]
    first = slots.tolist()
    return [
        (slice(start, end), slice(first[start], first[start] + end - start))
        for start, end in pairwise(starts)
        if start < end
    ]


def _raw(tensor: Tensor) -> RawNumbers:
    """The same memory."""
    raw: RawNumbers = tensor.view(_RAW[tensor.dtype.itemsize][0]).numpy()
    return raw


def _check(raw: RawNumbers, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raises ValueError."""
    if raw.shape != tuple(shape) or raw.dtype != _RAW[dtype.itemsize][1]:
        raise ValueError(f"{raw.dtype} {raw.shape} is not {dtype} {tuple(shape)}")
