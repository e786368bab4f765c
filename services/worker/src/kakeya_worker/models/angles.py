"""Cosines and sines of rotary angles, in float64.

Angles are counted in turns, so that taking off whole turns is exact however long the session gets; cosine and
sine are made of IEEE additions and multiplications alone, and are therefore the same on every machine.
"""

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.seams.geometry import Integers

# Taylor coefficients around 0 of sin(x) / x and cos(x) in x^2; for |x| <= pi / 4 the next terms are below 1e-17.
_SIN = (1.0, -1 / 6, 1 / 120, -1 / 5040, 1 / 362880, -1 / 39916800, 1 / 6227020800, -1 / 1307674368000)
_COS = (1.0, -1 / 2, 1 / 24, -1 / 720, 1 / 40320, -1 / 3628800, 1 / 479001600, -1 / 87178291200, 1 / 20922789888000)

Float32 = NDArray[np.float32]


def cos_sin(positions: Integers, frequencies: NDArray[np.float64]) -> tuple[Float32, Float32]:
    """Of tokens at some positions, any integers, rounded once; each [tokens, head_dim / 2].

    Args:
        positions: [tokens].
        frequencies: in turns a token; [head_dim / 2].
    """
    cos, sin = cos_sin_of_turns(positions[:, None] * frequencies)
    return cos.astype(np.float32), sin.astype(np.float32)


def cos_sin_of_turns(turns: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cosine and sine of angles in turns; within 2 ulp, and the same bits wherever IEEE arithmetic holds."""
    fraction = turns - np.rint(turns)  # exact
    quarter = np.rint(fraction * 4)
    x = (fraction - quarter * 0.25) * (2 * np.pi)  # within pi / 4
    cos, sin = _polynomial(x * x, _COS), x * _polynomial(x * x, _SIN)
    quadrant = quarter.astype(np.int64) & 3
    swapped = (quadrant & 1).astype(bool)
    turned_cos, turned_sin = np.where(swapped, sin, cos), np.where(swapped, cos, sin)
    return (
        np.where((quadrant == 1) | (quadrant == 2), -turned_cos, turned_cos),
        np.where(quadrant >= 2, -turned_sin, turned_sin),
    )


def _polynomial(x: NDArray[np.float64], coefficients: tuple[float, ...]) -> NDArray[np.float64]:
    """Horner's rule: each step one multiplication and one addition, never fused."""
    value = np.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + coefficient
    return value
