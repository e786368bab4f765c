"""exp and log whose bits are ours: the same on every processor and C library.

Only IEEE 754 additions, multiplications, divisions, comparisons and integer operations on the bits, each a numpy
function of its own, so that nothing can be fused. The error is below one unit in the last place.

Source: FreeBSD's msun, e_exp.c and e_log.c (fdlibm, Sun Microsystems 1993), without their branches: the argument
is reduced always, and by rounding to the nearest.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_BLOCK = 8192  # elements: the dozen arrays of a formula stay in the processor's cache, which is three times as fast

_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")  # 33 bits, so that its product with an exponent is exact
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_LOG2_E = float.fromhex("0x1.71547652b82fep+0")

# exp(r) = 1 + 2r / (2 - r + the polynomial in r^2), |r| <= ln(2) / 2; P1 to P5 of e_exp.c.
_EXP_POLYNOMIAL = tuple(
    float.fromhex(digits)
    for digits in (
        "0x1.555555555553ep-3",
        "-0x1.6c16c16bebd93p-9",
        "0x1.1566aaf25de2cp-14",
        "-0x1.bbd41c5d26bf1p-20",
        "0x1.6376972bea4d0p-25",
    )
)
_LEAST_EXPONENT, _GREATEST_EXPONENT = -746.0, 710.0  # beyond them exp is 0 or infinite

# log((1 + s) / (1 - s)) = 2s + s * the polynomial in s^2; Lg1 to Lg7 of e_log.c.
_LOG_POLYNOMIAL = tuple(
    float.fromhex(digits)
    for digits in (
        "0x1.5555555555593p-1",
        "0x1.999999997fa04p-2",
        "0x1.2492494229359p-2",
        "0x1.c71c51d8e78afp-3",
        "0x1.7466496cb03dep-3",
        "0x1.39a09d078c69fp-3",
        "0x1.2f112df3e5244p-3",
    )
)
_SMALLEST_NORMAL = 2.0**-1022
_SQRT_HALF_BITS = 0x3FE6A09E00000000  # of a number just below sqrt(1/2)
_ONE_BITS = 0x3FF0000000000000
_FRACTION_BITS = (1 << 52) - 1


def exp(x: Floats) -> Floats:
    """The exponential, elementwise; x is not NaN. Gives 0 and infinity where they are nearest."""
    x = np.clip(x, _LEAST_EXPONENT, _GREATEST_EXPONENT)
    k = np.rint(x * _LOG2_E)
    high = x - k * _LN2_HIGH
    low = k * _LN2_LOW
    r = high - low
    p1, p2, p3, p4, p5 = _EXP_POLYNOMIAL
    t = r * r
    c = r - t * (p1 + t * (p2 + t * (p3 + t * (p4 + t * p5))))
    y = 1.0 - ((low - r * c / (2.0 - c)) - high)
    # In two steps, because 2^k itself may be out of range; only the last one rounds.
    exponent = k.astype(np.int64)
    half = exponent >> 1
    with np.errstate(over="ignore", under="ignore"):
        return y * _power_of_two(half) * _power_of_two(exponent - half)


def log(x: Floats) -> Floats:
    """The natural logarithm, elementwise; x is not NaN and not negative. Of 0 it is -infinity."""
    is_subnormal = x < _SMALLEST_NORMAL
    normal = x * np.where(is_subnormal, 2.0**54, 1.0)
    # x = 2^k * (1 + f) with 1 + f between sqrt(1/2) and sqrt(2)
    bits = normal.view(np.int64) + (_ONE_BITS - _SQRT_HALF_BITS)
    k = ((bits >> 52) - 1023 - 54 * is_subnormal).astype(np.float64)
    f = ((bits & _FRACTION_BITS) + _SQRT_HALF_BITS).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    g1, g2, g3, g4, g5, g6, g7 = _LOG_POLYNOMIAL
    r = z * (g1 + w * (g3 + w * (g5 + w * g7))) + w * (g2 + w * (g4 + w * g6))
    half_square = 0.5 * f * f
    y = s * (half_square + r) + k * _LN2_LOW - half_square + f + k * _LN2_HIGH
    return np.where(x == 0.0, -np.inf, np.where(x == np.inf, np.inf, y))


def in_blocks(function: Callable[[NDArray[Any]], Floats], x: NDArray[Any]) -> Floats:
    """An elementwise function of x [n], n > 0, computed a block at a time."""
    return np.concatenate([function(x[start : start + _BLOCK]) for start in range(0, x.size, _BLOCK)])


def _power_of_two(exponent: NDArray[np.int64]) -> Floats:
    """2 to the exponent, which is that of a normal number; from its bits."""
    return ((exponent + 1023) << 52).view(np.float64)
