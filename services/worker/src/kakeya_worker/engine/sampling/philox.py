"""Philox4x32-10, a counter-based random generator: a pure function of key and counter.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

import numpy as np
from numpy.typing import NDArray

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)

Words = NDArray[np.uint64]


def philox4x32(counter: tuple[Words, Words, Words, Words], key: tuple[int, int]) -> tuple[Words, ...]:
    """Four random 32-bit words for each counter, held in uint64; words of a counter that are alike come as [1]."""
    x0, x1, x2, x3 = counter
    key0, key1 = key
    for _ in range(_ROUNDS):
        product0, product1 = _MULTIPLIERS[0] * x0, _MULTIPLIERS[1] * x2
        x0, x1, x2, x3 = (
            (product1 >> _HALF) ^ x1 ^ np.uint64(key0),
            product1 & _LOW,
            (product0 >> _HALF) ^ x3 ^ np.uint64(key1),
            product0 & _LOW,
        )
        key0, key1 = (key0 + _WEYL[0]) & 0xFFFFFFFF, (key1 + _WEYL[1]) & 0xFFFFFFFF
    return x0, x1, x2, x3


def uniforms(seed: int, history_index: int, token_ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """u(seed; history index, token id) in the open interval (0, 1), 52 bits each; shape of `token_ids`."""
    index_low, index_high, zero = np.array([[history_index & 0xFFFFFFFF], [history_index >> 32], [0]], dtype=np.uint64)
    counter = (index_low, index_high, token_ids.astype(np.uint64), zero)
    high, low, _, _ = philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32))
    bits = ((high << _HALF) | low) >> np.uint64(12)  # 52 bits, so that adding a half stays exact
    return (bits.astype(np.float64) + 0.5) * 2.0**-52
