"""K and V of 8 bits, as lanes hold them and as floats, for lanes of another type; docs/numerics.md, "Int8 KV".

A slot is a head's numbers as int8, and behind them their scale as a bfloat16, as bytes: [..., head_dim + 2]. Keys are
spread before they are rounded, and gathered again when they become floats.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

SCALE_BYTES = 2
Slots = NDArray[np.unsignedinteger[Any]]
Floats = NDArray[np.float32]

_LIMIT = np.float32(127)
_LEAST_SCALE = np.float32(2.0**-100)  # what is below counts as zero
_NO_SCALE = 0x7FC0  # of what is not finite


def from_floats(x: Floats, *, are_keys: bool) -> Slots:
    """[..., head_dim] -> uint8 [..., head_dim + 2]."""
    x = spread(x) if are_keys else x
    with np.errstate(invalid="ignore", over="ignore"):
        largest = np.abs(x).max(axis=-1, keepdims=True)
        scale = largest / _LIMIT
        is_zero = scale < _LEAST_SCALE
        bits = (scale.view(np.uint32) + 0xFFFF) >> 16  # rounded up, so that no number exceeds 127
        bits = np.where(np.isfinite(largest), np.where(is_zero, 0, bits), _NO_SCALE).astype(np.uint32)
        divisor = np.where(is_zero, np.float32(1), (bits << 16).view(np.float32))
        numbers = np.nan_to_num(np.rint(x * np.where(is_zero, np.float32(0), np.float32(1) / divisor)))
    as_bytes = numbers.clip(-_LIMIT, _LIMIT).astype(np.int8).view(np.uint8)
    return np.concatenate([as_bytes, bits.astype("<u2").view(np.uint8)], axis=-1)


def to_floats(slots: Slots, *, are_keys: bool) -> Floats:
    """What `from_floats` made of them; uint8 [..., head_dim + 2] -> [..., head_dim]."""
    numbers, scales = np.split(slots, [-SCALE_BYTES], axis=-1)
    wide = np.ascontiguousarray(scales).view("<u2").astype(np.uint32) << 16
    x: Floats = numbers.view(np.int8).astype(np.float32) * wide.view(np.float32)
    return spread(x) / np.float32(spread_size(x.shape[-1])) if are_keys else x


def spread_size(head_dim: int) -> int:
    """How many numbers of a head are spread together: the largest power of two that divides their number."""
    return head_dim & -head_dim


def spread(x: Floats) -> Floats:
    """A Hadamard transform without its factor, which makes channels alike; twice, it gives `spread_size` times x."""
    step = 1
    while step < spread_size(x.shape[-1]):
        pairs = x.reshape(*x.shape[:-1], -1, 2, step)
        low, high = pairs[..., 0, :], pairs[..., 1, :]
        x = np.stack([low + high, low - high], axis=-2).reshape(x.shape)
        step *= 2
    return x
