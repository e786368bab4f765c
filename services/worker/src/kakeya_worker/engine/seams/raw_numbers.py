"""Numbers by their bits, as lanes of backends with different array libraries exchange them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.seams import int8_slots

RawNumbers = NDArray[np.unsignedinteger[Any]]
"""float32 in 32 bits, bfloat16 in 16, and in 8 the slots of int8, with their scales."""

_NUM_DROPPED_BITS = 16
_INT8, _FLOAT32 = np.dtype(np.uint8), np.dtype(np.uint32)


def kv_of_type(numbers: RawNumbers, dtype: np.dtype[np.unsignedinteger[Any]], *, are_keys: bool) -> RawNumbers:
    """K or V in another type: as `of_type`, and int8 by float32; [..., slot]."""
    if numbers.dtype == dtype:
        return numbers
    if numbers.dtype == _INT8:
        return of_type(int8_slots.to_floats(numbers, are_keys=are_keys).view(_FLOAT32), dtype)
    if dtype == _INT8:
        return int8_slots.from_floats(of_type(numbers, _FLOAT32).view(np.float32), are_keys=are_keys)
    return of_type(numbers, dtype)


def of_type(numbers: RawNumbers, dtype: np.dtype[np.unsignedinteger[Any]]) -> RawNumbers:
    """The same numbers in another type: bfloat16 as float32 exactly, float32 as bfloat16 rounded to the nearest, ties
    to even. NaN stays NaN. Nothing is copied where the type is theirs already.

    Args:
        dtype: uint16 or uint32, as is that of the numbers.
    """
    if numbers.dtype == dtype:
        return numbers
    if dtype.itemsize > numbers.dtype.itemsize:
        return np.left_shift(numbers, _NUM_DROPPED_BITS, dtype=dtype)
    # Half of the last kept bit, and one less where that bit is 0: what lies exactly between goes to the even one.
    rounded = numbers + 0x7FFF + ((numbers >> _NUM_DROPPED_BITS) & 1)
    narrowed = np.where(np.isnan(numbers.view(np.float32)), numbers | 1 << 22, rounded) >> _NUM_DROPPED_BITS
    return narrowed.astype(dtype)
