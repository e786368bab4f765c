"""The ways in which exact mode holds a matrix: in groups of int8, or in GGUF's blocks."""

import torch
from torch import Tensor

from kakeya_worker.torch_backend.exact.arithmetic import power_of_two
from kakeya_worker.torch_backend.exact.gguf_blocks.linear import BlockLinear
from kakeya_worker.torch_backend.exact.gguf_blocks.packing import PackedBlocks, pack_blocks, unpack_blocks
from kakeya_worker.torch_backend.exact.integer_product import IntegerProduct
from kakeya_worker.torch_backend.exact.linear import Int8Linear
from kakeya_worker.torch_backend.exact.packing import PackedMatrix, pack, unpack
from kakeya_worker.torch_backend.exact.quantization import QuantizedMatrix
from kakeya_worker.torch_backend.weights import BlockMatrix

Matrix = QuantizedMatrix | BlockMatrix
Packed = PackedMatrix | PackedBlocks


def packed(matrix: Matrix) -> Packed:
    """As the kernel reads it."""
    return pack_blocks(matrix) if isinstance(matrix, BlockMatrix) else pack(matrix)


def stretch_of(matrix: Packed) -> Tensor:
    """What activations are multiplied with before they are quantized for it; float32 [in_features]."""
    return torch.ones(matrix.in_features) if isinstance(matrix, PackedBlocks) else power_of_two(matrix.exponents)


def eager_linear(matrix: Packed, bias: Tensor | None, product: IntegerProduct) -> Int8Linear | BlockLinear:
    """A linear layer over it in plain torch.

    Args:
        bias: float32 [out_features].
    """
    if isinstance(matrix, PackedBlocks):
        return BlockLinear(unpack_blocks(matrix), bias, product)
    return Int8Linear(unpack(matrix), bias, product)


class ExactEmbedding:
    """A table [vocab, hidden], of which the output head may be the same copy."""

    def __init__(self, table: Int8Linear | BlockLinear) -> None:
        self._table = table

    def rows(self, token_ids: Tensor) -> Tensor:
        """[tokens] -> [tokens, hidden]."""
        return self._table.rows(token_ids)

    def as_head(self) -> Int8Linear | BlockLinear:
        return self._table
