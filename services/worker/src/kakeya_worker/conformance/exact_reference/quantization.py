"""Weights in 8 bits with a scale for each 64 inputs, activations in 16 bits a token, products of whole numbers."""

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
_GROUP = 64


@dataclass(frozen=True)
class QuantizedLinear:
    """A linear layer whose weight [o, i] is values[o, i] * scales[o, i / 64] * 2^exponents[i].

    Attributes:
        values: whole numbers within -127..127; float64, in which sums of their products are exact in any order.
        scales: [out_features, groups].
        stretch: 2^exponents; [in_features].
        bias: [out_features], if any.
    """

    values: NDArray[np.float64]
    scales: Floats
    stretch: Floats
    bias: Floats | None = None

    def __call__(self, x: Floats) -> Floats:
        """[in_features] -> [out_features]."""
        whole, scale = whole_numbers(x * self.stretch)
        y = np.zeros(len(self.values), dtype=np.float32)
        for group, of_group in enumerate(self.scales.T):
            inputs = slice(group * _GROUP, (group + 1) * _GROUP)
            product = self.values[:, inputs] @ whole[inputs].astype(np.float64)
            y = y + product.astype(np.float32) * of_group
        y = y * scale
        return y if self.bias is None else y + self.bias

    def row(self, index: int) -> Floats:
        """The weights of one output, as an embedding; [in_features]."""
        scales = np.repeat(self.scales[index], _GROUP)[: len(self.stretch)]
        weights: Floats = self.values[index].astype(np.float32) * scales * self.stretch
        return weights


def quantize(weights: Sequence[Floats], biases: Sequence[Floats] = ()) -> QuantizedLinear:
    """Quantizes a linear layer's matrices [out_features, in_features] below one another as one."""
    return _quantized(np.concatenate(weights), _column_exponents(weights), biases)


def quantize_table(table: Floats) -> QuantizedLinear:
    """Quantizes embeddings or a head [vocab, hidden], whose columns are left as they are."""
    return _quantized(table, np.zeros(table.shape[1], dtype=np.int32))


def _quantized(weight: Floats, exponents: NDArray[np.int32], biases: Sequence[Floats] = ()) -> QuantizedLinear:
    shrunk = np.ldexp(weight, -exponents)
    groups = [_group(shrunk[:, start : start + _GROUP]) for start in range(0, shrunk.shape[1], _GROUP)]
    return QuantizedLinear(
        values=np.concatenate([values for values, _ in groups], axis=1).astype(np.float64),
        scales=np.concatenate([scales for _, scales in groups], axis=1),
        stretch=np.ldexp(np.float32(1), exponents),
        bias=np.concatenate(biases) if biases else None,
    )


def _group(weight: Floats) -> tuple[Floats, Floats]:
    """Some columns in whole numbers within +-127, and the scale of each row, a bfloat16; [rows, 1]."""
    scales = np.abs(weight).max(axis=1, keepdims=True) / np.float32(_WEIGHT_LIMIT)
    upper_halves = -(-scales.view(np.int32) // 65536)  # rounded up
    scales = (upper_halves * 65536).view(np.float32)
    scales = np.where(scales < _LEAST_MAGNITUDE, np.float32(0), scales)
    return np.rint(_quotient(weight, scales)), scales


def whole_numbers(x: Floats) -> tuple[Floats, np.float32]:
    """A token's x [features] in whole numbers of 16 bits, and their scale."""
    limit, largest = np.float32(_ACTIVATION_LIMIT), np.abs(x).max()
    return np.rint(x * _quotient(limit, largest)), largest / limit


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
