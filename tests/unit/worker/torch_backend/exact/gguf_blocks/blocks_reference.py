"""A linear layer whose weights are GGUF's blocks, with activations in 16 bits a token."""

from dataclasses import dataclass

import numpy as np

from kakeya_worker.conformance.exact_reference.formulas import Floats
from kakeya_worker.conformance.exact_reference.quantization import whole_numbers
from kakeya_worker.models.gguf.block_integers import BlockIntegers, BlockType


@dataclass(frozen=True)
class BlocksLinear:
    """Weights as `BlockIntegers` has them, row after row.

    Attributes:
        bias: [out_features], if any.
    """

    kind: BlockType
    blocks: BlockIntegers
    out_features: int
    bias: Floats | None = None

    def __call__(self, x: Floats) -> Floats:
        """[in_features] -> [out_features]."""
        kind, blocks = self.kind, self.blocks
        whole, scale = whole_numbers(x)
        inputs = whole.astype(np.int64).reshape(-1, kind.num_runs, kind.run)  # [blocks of a row, runs, run]
        weights = blocks.weights.astype(np.int64) - kind.zero
        weights = weights.reshape(self.out_features, *inputs.shape)  # [out_features, blocks of a row, runs, run]
        products = (weights * inputs).sum(axis=3)
        if blocks.run_scales is not None:
            products = products * blocks.run_scales.astype(np.int64).reshape(products.shape)
        sums = inputs.sum(axis=2) * np.ones((self.out_features, 1, 1), dtype=np.int64)
        if blocks.minima is not None:
            sums = -sums * blocks.minima.astype(np.int64).reshape(sums.shape)
        scales = blocks.scales.astype(np.float32).reshape(self.out_features, -1)
        y = np.zeros(self.out_features, dtype=np.float32)
        for block in range(len(inputs)):
            y = y + products[:, block].sum(axis=1).astype(np.float32) * scales[:, block]
            if blocks.offsets is not None:
                offsets = blocks.offsets.astype(np.float32).reshape(self.out_features, -1)
                y = y + sums[:, block].sum(axis=1).astype(np.float32) * offsets[:, block]
        y = y * scale
        return y if self.bias is None else y + self.bias

    def row(self, index: int) -> Floats:
        """The weights of one output, as an embedding; [in_features]."""
        kind, blocks = self.kind, self.blocks
        num_blocks = len(blocks.weights) // self.out_features
        own = slice(index * num_blocks, (index + 1) * num_blocks)
        weights = blocks.weights[own].astype(np.int64).reshape(num_blocks, kind.num_runs, kind.run) - kind.zero
        if blocks.run_scales is not None:
            weights = weights * blocks.run_scales[own, :, None].astype(np.int64)
        row = weights.astype(np.float32) * blocks.scales[own, None, None].astype(np.float32)
        if blocks.offsets is not None:
            offsets = blocks.offsets[own, None, None].astype(np.float32)
            minima = None if blocks.minima is None else blocks.minima[own, :, None].astype(np.float32)
            row = row + offsets if minima is None else row - minima * offsets
        return row.reshape(-1)
