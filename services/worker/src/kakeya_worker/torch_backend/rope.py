"""Rotary position embedding (arXiv 2104.09864) in the half-split layout, with angles in float64.

A key is rotated once, at its own history index. A query is rotated twice: at its index p for the window, and
at the position that its retention gives it for the sinks, which so stay at a distance the model was trained on.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kakeya_worker.engine.seams.geometry import Integers
from kakeya_worker.models.angles import cos_sin


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
        cos, sin = cos_sin(positions, self._frequencies)
        return Rotation(torch.from_numpy(cos).unsqueeze(1), torch.from_numpy(sin).unsqueeze(1))
