"""The float operations of exact mode, each written out.

numpy rounds every elementwise float32 operation by itself, as IEEE 754 demands, and fuses none. What it sums by
itself it sums in an order of its own, so sums are written out here.
"""

from collections.abc import Iterable
from functools import reduce

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_EXP_COEFFICIENTS = np.array(
    [1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1],
    np.float32,
)


def one_after_the_other(terms: Iterable[Floats]) -> Floats:
    """((t0 + t1) + t2) + ..."""
    return reduce(np.add, terms)


def by_halves(x: Floats) -> Floats:
    """The sum over the last axis, filled up with zeros to a power of two; the upper half is added to the lower."""
    size = 1 << (x.shape[-1] - 1).bit_length()
    halves = np.zeros((*x.shape[:-1], size), np.float32)
    halves[..., : x.shape[-1]] = x
    while size > 1:
        size //= 2
        halves = halves[..., :size] + halves[..., size:]
    return halves[..., 0]


def exp(x: Floats) -> Floats:
    """e^x for x <= 0: Cephes' expf; 0 below -86."""
    r = np.maximum(x, np.float32(-86))
    n = np.floor(r * np.float32(1.44269504088896341) + np.float32(0.5))
    r = r - n * np.float32(0.693359375)
    r = r - n * np.float32(-2.12194440e-4)
    y = np.full_like(r, _EXP_COEFFICIENTS[0])
    for coefficient in _EXP_COEFFICIENTS[1:]:
        y = y * r + coefficient
    y = y * (r * r) + r + np.float32(1)
    power = np.ldexp(y, n.astype(np.int32))
    return np.where(x < np.float32(-86), np.float32(0), power)


def rms_norm(x: Floats, weight: Floats, eps: float) -> Floats:
    """Over the last axis: x * (1 / sqrt(mean of squares + eps)) * weight."""
    mean_square = by_halves(x * x) / np.float32(x.shape[-1])
    inverse = np.float32(1) / np.sqrt(mean_square + np.float32(eps))
    normed: Floats = x * inverse[..., None] * weight
    return normed


def swiglu(gate: Floats, up: Floats) -> Floats:
    """Gate * sigmoid(gate) * up, without an exponential above 1."""
    e = exp(-np.abs(gate))
    numerator = np.where(gate >= 0, np.float32(1), e)
    gated: Floats = gate * (numerator / (e + np.float32(1))) * up
    return gated


def rotate(heads: Floats, cos: Floats, sin: Floats) -> Floats:
    """[heads, head_dim] by angles [head_dim / 2], half-split layout."""
    first, second = np.split(heads, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def rounded_to_bfloat16(x: Floats) -> Floats:
    """The nearest number of 8 significant bits, ties to even; still float32."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)
