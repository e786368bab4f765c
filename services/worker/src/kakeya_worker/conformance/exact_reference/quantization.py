"""Weights in 8 bits a channel, activations in 16 bits a token, products of whole numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.conformance.exact_reference.formulas import Floats, by_halves, one_after_the_other

_WEIGHT_LIMIT = 127
_ACTIVATION_LIMIT = 32639
_LEAST_MAGNITUDE = np.float32(2.0**-100)
_ROOT_HALF = np.float32(0.70710677)
_ROWS_OF_PART = 4096


@dataclass(frozen=True)
class QuantizedLinear:
    """A linear layer whose weight [o, i] is values[o, i] * scales[o] * 2^exponents[i].

    Attributes:
        values: whole numbers within -127..127; float64, in which sums of their products are exact in any order.
        scales: [out_features].
        stretch: 2^exponents; [in_features].
        bias: [out_features], if any.
    """

    values: NDArray[np.float64]
    scales: Floats
    stretch: Floats
    bias: Floats | None = None

    def __call__(self, x: Floats) -> Floats:
        """[in_features] -> [out_features]."""
        whole, scale = _whole_numbers(x * self.stretch, _ACTIVATION_LIMIT)
        product = whole.astype(np.float64) @ self.values.T
        upper = np.floor(product / 256)
        lower = product - 256 * upper
        y: Floats = (upper.astype(np.float32) * np.float32(256) + lower.astype(np.float32)) * scale * self.scales
        return y if self.bias is None else y + self.bias

    def row(self, index: int) -> Floats:
        """The weights of one output, as an embedding; [in_features]."""
        weights: Floats = self.values[index].astype(np.float32) * self.scales[index] * self.stretch
        return weights


def quantize(weights: Sequence[Floats], biases: Sequence[Floats] = ()) -> QuantizedLinear:
    """Quantizes matrices [out_features, in_features] below one another as one."""
    exponents = _column_exponents(weights)
    values, scales = _whole_numbers(np.ldexp(np.concatenate(weights), -exponents), _WEIGHT_LIMIT)
    return QuantizedLinear(
        values=values.astype(np.float64),
        scales=scales[:, 0],
        stretch=np.ldexp(np.float32(1), exponents),
        bias=np.concatenate(biases) if biases else None,
    )


def _whole_numbers(x: Floats, limit: int) -> tuple[Floats, Floats]:
    """Each row of x [..., features] in whole numbers within +-limit, and the rows' scales [..., 1]."""
    largest = np.abs(x).max(axis=-1, keepdims=True)
    return np.rint(x * _quotient(np.float32(limit), largest)), largest / np.float32(limit)


def _column_exponents(weights: Sequence[Floats]) -> NDArray[np.int32]:
    """log2 of each column's size over the median column's, to the nearest whole number within +-30."""
    parts = [
        weight[start : start + _ROWS_OF_PART] for weight in weights for start in range(0, len(weight), _ROWS_OF_PART)
    ]
    sizes = np.sqrt(one_after_the_other([_square_shares(part) for part in parts]))
    mantissa, exponents = np.frexp(_quotient(sizes, _lower_median(sizes)))
    rounded = np.clip(exponents - (mantissa < _ROOT_HALF), -30, 30)
    return np.where(mantissa > 0, rounded, 0).astype(np.int32)


def _square_shares(part: Floats) -> Floats:
    """The sums of each column's squares as shares of their rows' sums of squares; [in_features]."""
    squares = part * part
    return by_halves(_quotient(squares, by_halves(squares)[:, None]).T)


def _lower_median(x: Floats) -> Floats:
    """A value of x: of an even number of them the lower of the two in the middle."""
    middle: Floats = np.sort(x)[(len(x) - 1) // 2]
    return middle


def _quotient(x: Floats | np.float32, by: Floats) -> Floats:
    """0 where the divisor is next to nothing."""
    is_zero = by < _LEAST_MAGNITUDE
    return np.where(is_zero, np.float32(0), x / np.where(is_zero, np.float32(1), by))
