"""Keys and values in 8 bits with a scale a head, queries in 16: docs/numerics.md, "Int8 KV"."""

import math

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.conformance.exact_reference.formulas import Floats, by_halves, exp, one_after_the_other

_SLOT_LIMIT, _QUERY_LIMIT, _WEIGHT_LIMIT = (np.float32(limit) for limit in (127, 32639, 255))
_LEAST = np.float32(2.0**-100)
_BLOCK = 16


def spread(x: Floats) -> Floats:
    """Sums and differences of numbers 1, 2, 4 .. apart, within blocks of the largest power of two there is of them."""
    y = x.copy()
    size = x.shape[-1] & -x.shape[-1]
    step = 1
    while step < size:
        for i in range(x.shape[-1]):
            if not i & step:
                y[..., i], y[..., i + step] = y[..., i] + y[..., i + step], y[..., i] - y[..., i + step]
        step *= 2
    return y


def slots(x: Floats) -> Floats:
    """[..., head_dim] -> whole numbers within -127..127 and behind them their scale; [..., head_dim + 1]."""
    scale = np.abs(x).max(axis=-1, keepdims=True) / _SLOT_LIMIT
    upwards = (scale.view(np.uint32) + 0xFFFF & 0xFFFF0000).view(np.float32)
    scale = np.where(scale < _LEAST, np.float32(0), upwards)
    return np.concatenate([np.rint(x * _reciprocal(np.float32(1), scale)), scale], axis=-1)


def scores(queries: Floats, keys: Floats) -> Floats:
    """[heads, head_dim] and slots [kv_heads, keys, head_dim + 1] -> [kv_heads, group, keys]."""
    num_kv_heads, head_dim = len(keys), queries.shape[-1]
    turned = spread(queries)
    largest = np.abs(turned).max(axis=-1, keepdims=True)
    whole = np.rint(turned * _reciprocal(_QUERY_LIMIT, largest)).reshape(num_kv_heads, -1, head_dim)
    products = whole.astype(np.int64) @ np.moveaxis(keys[..., :-1], 1, 2).astype(np.int64)
    constant = np.float32(1 / math.sqrt(head_dim)) / np.float32(head_dim & -head_dim)
    of_queries = (largest / _QUERY_LIMIT * constant).reshape(num_kv_heads, -1, 1)
    scaled: Floats = products.astype(np.float32) * keys[:, None, :, -1] * of_queries
    return scaled


def mix(scores: Floats, values: Floats, block: NDArray[np.int64], place: NDArray[np.int64]) -> Floats:
    """Softmax times slots [kv_heads, keys, head_dim + 1]; -> [kv_heads, group, head_dim].

    Args:
        block: of each key, counted from 0; [keys].
        place: of each key within its block; [keys].
    """
    weights = exp(scores - scores.max(axis=-1, keepdims=True))
    in_blocks = [np.zeros((block[-1] + 1, *scores.shape[:2], _BLOCK), np.float32) for _ in range(2)]
    plain, scaled = in_blocks  # a missing key counts 0
    plain[block, :, :, place] = np.moveaxis(weights, 2, 0)
    scaled[block, :, :, place] = np.moveaxis(weights * values[:, None, :, -1], 2, 0)
    numbers = np.zeros((block[-1] + 1, len(values), _BLOCK, values.shape[-1] - 1), np.int64)
    numbers[block, :, place] = np.moveaxis(values[..., :-1], 1, 0)
    largest = scaled.max(axis=-1, keepdims=True)
    whole = np.rint(scaled * _reciprocal(_WEIGHT_LIMIT, largest)).astype(np.int64)
    products = (whole @ numbers).astype(np.float32)  # [blocks, kv_heads, group, head_dim]
    mixed = one_after_the_other(products * (largest / _WEIGHT_LIMIT))
    total = by_halves(one_after_the_other(plain))[..., None]
    return mixed / total


def _reciprocal(numerator: np.float32, x: Floats) -> Floats:
    """Numerator / x; 0 where that is below what counts."""
    counts = ~(x < _LEAST)
    return np.where(counts, numerator / np.where(counts, x, np.float32(1)), np.float32(0))
