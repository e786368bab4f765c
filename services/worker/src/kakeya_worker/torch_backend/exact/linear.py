"""Linear layers and embeddings over quantized matrices."""

import torch
from torch import Tensor

from kakeya_worker.torch_backend.exact.arithmetic import power_of_two
from kakeya_worker.torch_backend.exact.integer_product import IntegerProduct
from kakeya_worker.torch_backend.exact.quantization import QuantizedMatrix, in_groups, quantize_activations


class Int8Linear:
    """y = (each group's product * its scale, one after the other) * scale of the row (+ bias); see docs/numerics.md.

    Args:
        bias: float32 [out_features].
    """

    def __init__(self, matrix: QuantizedMatrix, bias: Tensor | None, product: IntegerProduct) -> None:
        self._groups = in_groups(matrix.values).transpose(0, 1).contiguous()  # [groups, out_features, 64]
        self._scales = matrix.scales.t().float()  # [groups, out_features]
        self._stretch = power_of_two(matrix.exponents)  # [in_features]
        self._bias = bias
        self._product = product

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, in_features] -> [tokens, out_features]; float32."""
        upper, lower, scales = quantize_activations(x * self._stretch)
        y = x.new_zeros(x.shape[0], self._scales.shape[1])
        of_activations = in_groups(torch.cat([upper, lower])).transpose(0, 1)
        for activations, values, of_group in zip(of_activations, self._groups, self._scales, strict=True):
            of_upper, of_lower = self._product(activations.contiguous(), values).split(x.shape[0])
            y = y + ((of_upper << 8) + of_lower).float() * of_group
        y = y * scales
        return y if self._bias is None else y + self._bias

    def rows(self, indices: Tensor) -> Tensor:
        """The weights of some outputs; [indices] -> [indices, in_features]."""
        weights = self._groups[:, indices].float() * self._scales[:, indices, None]
        return weights.transpose(0, 1).flatten(1)[:, : len(self._stretch)] * self._stretch
