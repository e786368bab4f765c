"""Root mean square norm (arXiv 1910.07467)."""

import mlx.core as mx
from mlx import nn


class Norm(nn.Module):
    """Computed in float32 and rounded once, where MLX's own rounds twice."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = mx.ones((size,))
        self._eps = eps

    def __call__(self, x: mx.array) -> mx.array:
        """[..., size] -> the same shape and dtype."""
        wide = mx.fast.rms_norm(x.astype(mx.float32), self.weight.astype(mx.float32), self._eps)
        return wide.astype(x.dtype)
