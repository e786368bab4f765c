"""Rotary position embedding (arXiv 2104.09864) in the half-split layout, with angles in float64.

A key is rotated once, at its own history index. A query is rotated twice: at its index p for the window, and
at min(p, S + W - 1) for the sinks, which so stay at a distance the model was trained on however long the
session gets (StreamingLLM's positions inside the cache, arXiv 2309.17453, section 3.2).
"""

from dataclasses import dataclass

import torch
from torch import Tensor


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
        theta: base of the frequencies.
        head_dim: even.
    """

    def __init__(self, theta: float, head_dim: int) -> None:
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
        self._frequencies = theta**-exponents  # [head_dim / 2]

    def at(self, positions: Tensor) -> Rotation:
        """The rotation of each token; positions [tokens], any integers."""
        angles = positions.to(torch.float64)[:, None, None] * self._frequencies  # [tokens, 1, head_dim / 2]
        return Rotation(angles.cos().float(), angles.sin().float())
