"""Queries, keys and values in whole numbers, where the KV is int8; docs/numerics.md, "Int8 KV".

A slot holds a head's numbers as int8, and behind them their scale as a bfloat16, as bytes: [..., head_dim + 2].
"""

import torch
from torch import Tensor

from kakeya_worker.engine.seams.int8_slots import SCALE_BYTES, spread_size
from kakeya_worker.torch_backend.exact.arithmetic import divide

_SLOT_LIMIT, _QUERY_LIMIT = 127.0, 32639.0
LEAST_SCALE = 2.0**-100
"""What is below counts as zero: its reciprocal would overflow."""


def spread(x: Tensor) -> Tensor:
    """A Hadamard transform without its factor, block by block, so that no channel stays much larger than the others.

    Products of two vectors that are both spread are `spread_size` times what they were. float32 [..., head_dim].
    """
    size = spread_size(x.shape[-1])
    step = 1
    while step < size:
        low, high = x.unflatten(-1, (-1, 2, step)).unbind(-2)
        x = torch.stack([low + high, low - high], dim=-2).flatten(-3)
        step *= 2
    return x


def as_slots(x: Tensor) -> Tensor:
    """float32 [..., head_dim] -> uint8 [..., head_dim + 2]."""
    largest = x.abs().amax(dim=-1, keepdim=True)
    scale = torch.div(largest, torch.full_like(largest, _SLOT_LIMIT))
    is_zero = scale < LEAST_SCALE
    bits = scale.view(torch.int32) + 0xFFFF >> 16  # rounded up, so that no number exceeds 127
    bits = torch.where(largest.isfinite(), bits.masked_fill(is_zero, 0), 0x7FC0)
    inverse = divide(1.0, (bits << 16).view(torch.float32)).masked_fill(is_zero, 0.0)
    numbers = (x * inverse).round().nan_to_num(0.0).to(torch.int8)
    return torch.cat([numbers.view(torch.uint8), bits.to(torch.int16).view(torch.uint8)], dim=-1)


def of_slots(slots: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers, int8 [..., head_dim], and their scales, float32 [...]."""
    numbers, scales = slots.split([slots.shape[-1] - SCALE_BYTES, SCALE_BYTES], dim=-1)
    return numbers.view(torch.int8), scales.contiguous().view(torch.bfloat16).squeeze(-1).float()


def as_queries(x: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers of 16 bits, float64 [..., head_dim], and their scales, float32 [...]."""
    largest = x.abs().amax(dim=-1, keepdim=True)
    inverse = divide(_QUERY_LIMIT, largest).masked_fill(largest < LEAST_SCALE, 0.0)
    scale = torch.div(largest, torch.full_like(largest, _QUERY_LIMIT)).masked_fill(~largest.isfinite(), torch.nan)
    return (x * inverse).round().double(), scale.squeeze(-1)
