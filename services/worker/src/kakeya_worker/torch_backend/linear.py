"""Linear layers, behind one signature so that a quantized one can take the place of the float one."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


class Linear(Protocol):
    """x [tokens, in_features] -> [tokens, out_features]."""

    def __call__(self, x: Tensor) -> Tensor: ...


MakeLinear = Callable[[Tensor, Tensor | None], Linear]
"""(weight [out_features, in_features], bias [out_features] or None) -> a Linear that owns them."""


class FloatLinear:
    """Weights in the model's dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self._weight, self._bias)
