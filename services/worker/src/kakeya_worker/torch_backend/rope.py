"""Rotary position embedding (arXiv 2104.09864) in the half-split layout, with angles in float64.

A key is rotated once, at its own history index. A query is rotated twice: at its index p for the window, and
at the position that its retention gives it for the sinks, which so stay at a distance the model was trained on.

Angles are counted in turns, so that taking off whole turns is exact however long the session gets; cosine and
sine are made of IEEE additions and multiplications alone, and are therefore the same on every machine.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kakeya_worker.engine.geometry import Integers

# Taylor coefficients around 0 of sin(x) / x and cos(x) in x^2; for |x| <= pi / 4 the next terms are below 1e-17.
_SIN = (1.0, -1 / 6, 1 / 120, -1 / 5040, 1 / 362880, -1 / 39916800, 1 / 6227020800, -1 / 1307674368000)
_COS = (1.0, -1 / 2, 1 / 24, -1 / 720, 1 / 40320, -1 / 3628800, 1 / 479001600, -1 / 87178291200, 1 / 20922789888000)


@dataclass(frozen=True)
class Rotation:
    """Cosines and sines of some tokens' angles in float32, each [tokens, 1, head_dim / 2]."""

    cos: Tensor
    sin: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Rotates heads: [tokens, heads, head_dim] -> the same shape and dtype; rounded once, at the end."""
        first, second = x.float().chunk(2, dim=-1)
        rotated = torch.cat((first * self.cos - second * self.sin, second * self.cos + first * self.sin), dim=-1)
        return rotated.to(x.dtype)


class Rope:
    """The angles of a model.

    Args:
        frequencies: in turns a token; [head_dim / 2].
    """

    def __init__(self, frequencies: NDArray[np.float64]) -> None:
        self._frequencies = frequencies

    def at(self, positions: Integers) -> Rotation:
        """The rotation of each token; positions [tokens], any integers."""
        cos, sin = cos_sin_of_turns(positions[:, None, None] * self._frequencies)
        return Rotation(torch.from_numpy(cos.astype(np.float32)), torch.from_numpy(sin.astype(np.float32)))


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
