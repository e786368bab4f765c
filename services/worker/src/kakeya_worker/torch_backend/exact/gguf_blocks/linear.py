"""Linear layers and embeddings over GGUF's blocks, in plain torch."""

from collections.abc import Mapping

import torch
from torch import Tensor

from kakeya_worker.torch_backend.exact.integer_product import IntegerProduct
from kakeya_worker.torch_backend.exact.quantization import quantize_activations
from kakeya_worker.torch_backend.weights import BlockMatrix


class BlockLinear:
    """y = (each block's product * its scale, one after the other) * scale of the row (+ bias); see docs/numerics.md.

    Args:
        bias: float32 [out_features].
    """

    def __init__(self, matrix: BlockMatrix, bias: Tensor | None, product: IntegerProduct) -> None:
        kind, scales = matrix.kind, matrix.scales
        weights = (matrix.weights.to(torch.int16) - kind.zero).to(torch.int8)
        self._kind = kind
        self._runs = _by_run(weights, kind.run)  # [runs, out_features, run]
        self._of_runs = None if scales.of_runs is None else scales.of_runs.t().long()  # [runs, out_features]
        self._minima = None if scales.minima is None else scales.minima.t().long()  # [runs, out_features]
        self._of_blocks = scales.of_blocks.t().float()  # [blocks, out_features]
        self._offsets = None if scales.offsets is None else scales.offsets.t().float()  # [blocks, out_features]
        self._bias = bias
        self._product = product

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, in_features] -> [tokens, out_features]; float32."""
        upper, lower, scales = quantize_activations(x)
        activations = _by_run(torch.cat([upper, lower]), self._kind.run)  # [runs, 2 * tokens, run]
        y = x.new_zeros(x.shape[0], self._of_blocks.shape[1])
        for block in range(len(self._of_blocks)):
            runs = range(block * self._kind.num_runs, (block + 1) * self._kind.num_runs)
            products = _sum(self._of_runs, {run: self._run_product(activations, run) for run in runs})
            y = y + products * self._of_blocks[block]
            if self._offsets is None:
                continue
            sums = _sum(self._minima, {run: _whole(activations[run].sum(-1, True).long()) for run in runs})
            offsets = sums * self._offsets[block]
            y = y + offsets if self._minima is None else y - offsets
        y = y * scales
        return y if self._bias is None else y + self._bias

    def rows(self, indices: Tensor) -> Tensor:
        """The weights of some outputs; [indices] -> [indices, in_features]."""
        weights = self._runs[:, indices].long()  # [runs, indices, run]
        if self._of_runs is not None:
            weights = weights * self._of_runs[:, indices, None]
        of_runs = self._kind.num_runs
        weights = weights.float() * self._of_blocks[:, indices, None].repeat_interleave(of_runs, dim=0)
        if self._offsets is not None:
            offsets = self._offsets[:, indices, None].repeat_interleave(of_runs, dim=0)
            if self._minima is None:
                weights = weights + offsets
            else:
                weights = weights - self._minima[:, indices, None].float() * offsets
        return weights.transpose(0, 1).flatten(1)

    def as_head(self) -> "BlockLinear":
        return self

    def _run_product(self, activations: Tensor, run: int) -> Tensor:
        """Exact; int64 [tokens, out_features]."""
        return _whole(self._product(activations[run].contiguous(), self._runs[run]).long())


def _sum(scales: Tensor | None, of_runs: Mapping[int, Tensor]) -> Tensor:
    """Whole numbers [tokens, out_features] by run, each times its scales, by one rounding; float32."""
    parts = [whole if scales is None else whole * scales[run] for run, whole in of_runs.items()]
    return torch.stack(parts).sum(dim=0).float()


def _whole(upper_then_lower: Tensor) -> Tensor:
    """What comes of upper and of lower bytes as one number: [2 * tokens, ...] -> [tokens, ...]."""
    upper, lower = upper_then_lower.chunk(2)
    return (upper << 8) + lower


def _by_run(x: Tensor, run: int) -> Tensor:
    """[rows, features] -> [runs, rows, run]."""
    runs: Tensor = x.unflatten(1, (-1, run)).transpose(0, 1).contiguous()
    return runs
