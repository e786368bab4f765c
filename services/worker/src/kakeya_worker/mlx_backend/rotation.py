"""Rotary position embedding (arXiv 2104.09864) in the half-split layout; angles come from the host, in float64."""

from dataclasses import dataclass

import mlx.core as mx


@dataclass(frozen=True)
class Rotation:
    """Cosines and sines of some tokens' angles in float32, each [tokens, 1, head_dim / 2]."""

    cos: mx.array
    sin: mx.array

    def __call__(self, x: mx.array) -> mx.array:
        """Rotates heads: [tokens, heads, head_dim] -> the same shape and dtype; rounded once, at the end."""
        first, second = mx.split(x.astype(mx.float32), 2, axis=-1)
        rotated = mx.concatenate([first * self.cos - second * self.sin, second * self.cos + first * self.sin], axis=-1)
        return rotated.astype(x.dtype)
