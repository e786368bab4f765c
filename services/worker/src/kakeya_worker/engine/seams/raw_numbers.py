"""Floats by their bits, as lanes of backends with different array libraries exchange them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

RawNumbers = NDArray[np.unsignedinteger[Any]]
"""float32 in 32 bits, bfloat16 in 16."""

_NUM_DROPPED_BITS = 16


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
