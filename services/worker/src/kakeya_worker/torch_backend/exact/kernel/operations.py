"""Single operations of the kernel on tensors, to be compared with those of the eager form."""

import ctypes
import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kakeya_worker.torch_backend.exact.attention.key_blocks import BLOCK, KeyBlocks
from kakeya_worker.torch_backend.exact.kernel import interface
from kakeya_worker.torch_backend.exact.kernel.interface import pointer
from kakeya_worker.torch_backend.exact.kernel.library import Kernel
from kakeya_worker.torch_backend.exact.matrices import Packed, stretch_of
from kakeya_worker.torch_backend.numerics import KvType, RowQueries


@dataclass(frozen=True)
class Operations:
    """Of one kernel; all tensors are contiguous float32 unless it is said otherwise."""

    kernel: Kernel

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """[rows, size] -> [rows, size]."""
        y = torch.empty_like(x)
        self._library.kakeya_op_norm(self._variant, pointer(x), pointer(weight), eps, *x.shape, pointer(y))
        return y

    def linear(self, matrix: Packed, x: Tensor, bias: Tensor | None = None, onto: Tensor | None = None) -> Tensor:
        """[tokens, in_features] -> [tokens, out_features], added to `onto` where that is given."""
        stretch = stretch_of(matrix)
        struct = interface.matrix(matrix, stretch, bias)
        y = x.new_empty(len(x), matrix.out_features) if onto is None else onto.clone()
        arguments = (ctypes.byref(struct), pointer(x), len(x), int(onto is not None), pointer(y))
        self._library.kakeya_op_linear(self._variant, *arguments)
        return y

    def embed(self, matrix: Packed, rows: Tensor) -> Tensor:
        """int64 [tokens] -> [tokens, in_features]."""
        stretch = stretch_of(matrix)
        struct = interface.matrix(matrix, stretch, None)
        y = torch.empty(len(rows), matrix.in_features)
        self._library.kakeya_op_embed(self._variant, ctypes.byref(struct), pointer(rows), len(rows), pointer(y))
        return y

    def swiglu(self, gate_up: Tensor) -> Tensor:
        """[tokens, 2 * size] -> [tokens, size]."""
        y = gate_up.new_empty(len(gate_up), gate_up.shape[1] // 2)
        self._library.kakeya_op_swiglu(self._variant, pointer(gate_up), *y.shape, pointer(y))
        return y

    def exp(self, x: Tensor) -> Tensor:
        """Of x <= 0; [size]."""
        y = x.clone()
        self._library.kakeya_op_exp(self._variant, pointer(y), y.numel())
        return y

    def angle(self, frequencies: NDArray[np.float64], position: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines at a position; each [head_dim / 2]."""
        angle = torch.empty(2, len(frequencies))
        self._library.kakeya_op_angle(frequencies.ctypes.data, len(frequencies), position, pointer(angle))
        return angle[0], angle[1]

    def heads(
        self,
        qkv: Tensor,
        num_heads: int,
        num_kv_heads: int,
        q_norm: Tensor | None,
        k_norm: Tensor | None,
        key_angle: Tensor | None,
        recent_angle: Tensor | None,
        sink_angle: Tensor | None,
        *,
        eps: float,
        kv_type: KvType,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One token's.

        Args:
            qkv: [num_heads + 2 * num_kv_heads, head_dim].
            q_norm, k_norm: [head_dim].
            key_angle, recent_angle, sink_angle: cosines, then sines; [head_dim].

        Returns:
            Queries to recent keys and to sinks [num_heads, padded head_dim], as the kernel keeps them, and keys and
            values [num_kv_heads, slot].
        """
        head_dim = qkv.shape[1]
        shape = interface.head_shape(num_heads, num_kv_heads, head_dim, eps, 1.0, kv_type)
        to_recent, to_sinks = (qkv.new_zeros(num_heads, shape.padded_head_dim) for _ in range(2))
        size = kv_type.slot_size(head_dim)
        keys, values = (torch.empty(num_kv_heads, size, dtype=kv_type.dtype) for _ in range(2))
        tensors = (qkv, q_norm, k_norm, key_angle, recent_angle, sink_angle, to_recent, to_sinks, keys, values)
        heads = interface.Heads(*map(pointer, tensors), head_stride=size * kv_type.dtype.itemsize)
        self._library.kakeya_op_heads(self._variant, ctypes.byref(shape), ctypes.byref(heads))
        return to_recent, to_sinks, keys, values

    def queries(self, queries: Tensor, kv_type: KvType) -> Tensor:
        """As the kernel keeps them, neither normed nor rotated; [queries, heads, head_dim], the last one padded."""
        num_heads, head_dim = queries.shape[1:]
        no_kv = queries.new_zeros(2, head_dim)
        each = (torch.cat([of_one, no_kv]) for of_one in queries)
        nothing = (None,) * 5
        return torch.stack([self.heads(qkv, num_heads, 1, *nothing, eps=0.0, kv_type=kv_type)[0] for qkv in each])

    def attend(
        self, queries: RowQueries, keys: Tensor, values: Tensor, blocks: KeyBlocks, head_dim: int, kv_type: KvType
    ) -> Tensor:
        """As `exact.attention.attend` and `exact.integer_attention.attend`, with queries as `heads` returns them.

        Args:
            queries: [queries, heads, padded head_dim].
            keys, values: [kv_heads, slots, slot].
        """
        num_queries, num_heads, _ = queries.to_recent.shape
        num_kv_heads = len(keys)
        scale = 1 / math.sqrt(head_dim)
        shape = interface.head_shape(num_heads, num_kv_heads, head_dim, 0.0, scale, kv_type)
        to_recent, to_sinks = queries.to_recent.contiguous(), queries.to_sinks.contiguous()
        slots = torch.from_numpy(blocks.slots).to(torch.int32)
        visible = torch.from_numpy(blocks.visible_bits.view("<i2").copy())
        mixed = to_recent.new_empty(num_queries, num_heads, head_dim)
        scores = to_recent.new_empty(
            max(interface.FLOAT_TILE_QUERIES, interface.INTEGER_TILE_QUERIES), blocks.num_blocks * BLOCK
        )
        group = num_heads // num_kv_heads
        for kv_head in range(num_kv_heads):
            row = interface.Attention(
                *(tensor[0, kv_head * group].data_ptr() for tensor in (to_recent, to_sinks)),
                *(tensor[kv_head].data_ptr() for tensor in (keys, values)),
                *(pointer(tensor) for tensor in (slots, visible)),
                num_blocks=blocks.num_blocks,
                num_sink_blocks=blocks.num_sinks // BLOCK,
                num_queries=num_queries,
                mixed=mixed[0, kv_head * group].data_ptr(),
                scores=pointer(scores),
            )
            self._library.kakeya_op_attend(self._variant, ctypes.byref(shape), ctypes.byref(row))
        return mixed.flatten(1)

    @property
    def _library(self) -> ctypes.CDLL:
        return self.kernel.library

    @property
    def _variant(self) -> int:
        return self.kernel.variant
