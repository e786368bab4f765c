"""Linear layers and embeddings over quantized matrices."""

import torch
from torch import Tensor

from kakeya_worker.torch_backend.exact.arithmetic import power_of_two
from kakeya_worker.torch_backend.exact.integer_product import IntegerProduct
from kakeya_worker.torch_backend.exact.quantization import QuantizedMatrix, quantize_activations


class Int8Linear:
    """y = (product * scale of the row) * scale of the channel (+ bias); see docs/numerics.md.

    Args:
        bias: float32 [out_features].
    """

    def __init__(self, matrix: QuantizedMatrix, bias: Tensor | None, product: IntegerProduct) -> None:
        self._matrix = matrix
        self._stretch = power_of_two(matrix.exponents)  # [in_features]
        self._bias = bias
        self._product = product

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, in_features] -> [tokens, out_features]; float32."""
        upper, lower, scales = quantize_activations(x * self._stretch)
        of_upper, of_lower = self._product(torch.cat([upper, lower]), self._matrix.values).split(x.shape[0])
        # The product is 256 * of_upper + of_lower; in floats its bits must not depend on how it was cut.
        product = (of_upper + (of_lower >> 8)).float() * 256.0 + (of_lower & 0xFF).float()
        y: Tensor = product * scales * self._matrix.scales
        return y if self._bias is None else y + self._bias


class Int8Embedding:
    """A table [vocab, hidden], of which the output head may be the same copy."""

    def __init__(self, matrix: QuantizedMatrix, product: IntegerProduct) -> None:
        self._matrix = matrix
        self._stretch = power_of_two(matrix.exponents)  # [hidden]
        self._product = product

    def rows(self, token_ids: Tensor) -> Tensor:
        """[tokens] -> [tokens, hidden]."""
        return self._matrix.values[token_ids].float() * self._matrix.scales[token_ids, None] * self._stretch

    def as_head(self) -> Int8Linear:
        return Int8Linear(self._matrix, None, self._product)
