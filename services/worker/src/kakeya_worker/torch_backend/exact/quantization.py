"""Weights in 8 bits, a scale for each 64 inputs of a channel; activations in 16 bits a row.

Both are symmetric, and both reproducible to the bit.

A column of a linear layer that is larger than the others by powers of two (an outlier channel) is scaled down by
them and its activation up, which is exact and keeps the other columns' precision (the idea of SmoothQuant, arXiv
2211.10438, in powers of two and without data). In tables of embeddings columns differ without being outliers, and there
it costs precision.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor
from torch.nn.functional import pad

from kakeya_worker.torch_backend.exact.arithmetic import divide, fold, power_of_two, sqrt

GROUP = 64  # inputs of a channel that share a scale: sums of their products fit int32

WEIGHT_LIMIT = 127
ACTIVATION_LIMIT = 32639  # 127 x 256 + 127: the largest whose upper and lower byte are both within int8
_ROWS_AT_ONCE = 4096  # of a sum over rows, so that its bits depend on it
_ELEMENTS_AT_ONCE = 1 << 20  # of everything else, which is done piece by piece
_LEAST_MAGNITUDE = 2.0**-100  # rows below it count as zero: their reciprocal would overflow
_MAX_EXPONENT = 30
_ROOT_HALF = 0.7071067811865476


@dataclass(frozen=True)
class QuantizedMatrix:
    """weight[o, i] = values[o, i] * scales[o, i / 64] * 2^exponents[i].

    Attributes:
        values: int8 within -127..127; [out_features, in_features].
        scales: bfloat16; [out_features, groups], the last of which may be short.
        exponents: int8; [in_features].
    """

    values: Tensor
    scales: Tensor
    exponents: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """(out_features, in_features)."""
        return self.values.shape[0], self.values.shape[1]

    @property
    def is_finite(self) -> bool:
        """Whether all its numbers are."""
        return bool(self.scales.isfinite().all())


def quantize_matrix(parts: Sequence[Tensor]) -> QuantizedMatrix:
    """Quantizes a linear layer: float matrices [out_features, in_features] below one another, a few rows at a time."""
    blocks = [block for part in parts for block in part.split(_ROWS_AT_ONCE)]
    return _quantize(blocks, _column_exponents(blocks))


def quantize_table(table: Tensor) -> QuantizedMatrix:
    """Quantizes a table of embeddings or the head, float [vocab, hidden], a few rows at a time."""
    return _quantize([table], torch.zeros(table.shape[1], dtype=torch.int32))


def num_groups(in_features: int) -> int:
    """How many scales a channel has."""
    return -(-in_features // GROUP)


def in_groups(x: Tensor) -> Tensor:
    """[rows, features] -> [rows, groups, 64], zeros behind the last."""
    groups: Tensor = pad(x, (0, -x.shape[1] % GROUP)).unflatten(1, (-1, GROUP))
    return groups


def quantize_activations(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """X [tokens, features] -> (upper, lower, scales) with x ~ (256 * upper + lower) * scales.

    Returns:
        int8 [tokens, features] within -127..127, int8 [tokens, features], float32 [tokens, 1].
    """
    values, scales = _quantize_rows(x, ACTIVATION_LIMIT)
    whole = values.to(torch.int32)
    upper = (whole + 128) >> 8
    return upper.to(torch.int8), (whole - (upper << 8)).to(torch.int8), scales


def _quantize(blocks: Sequence[Tensor], exponents: Tensor) -> QuantizedMatrix:
    shrink = power_of_two(-exponents)
    num_rows, num_columns = sum(len(block) for block in blocks), len(exponents)
    values = torch.empty(num_rows, num_columns, dtype=torch.int8)
    scales = torch.empty(num_rows, num_groups(num_columns), dtype=torch.bfloat16)
    first = 0
    for piece in _pieces(blocks, dim=0):
        rows = slice(first, first + len(piece))
        values[rows], scales[rows] = _quantize_groups(piece.float() * shrink)
        first = rows.stop
    return QuantizedMatrix(values, scales, exponents.to(torch.int8))


def _quantize_groups(x: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers within +-127 as float32 [rows, features], and the groups' scales as bfloat16 [rows, groups]."""
    groups = in_groups(x)
    largest = groups.abs().amax(dim=-1)
    scales = _round_up(torch.div(largest, torch.full_like(largest, WEIGHT_LIMIT)))
    scales = scales.masked_fill(scales < _LEAST_MAGNITUDE, 0.0)
    values = _share(groups, scales[..., None]).round()
    return values.flatten(1)[:, : x.shape[1]], scales.to(torch.bfloat16)


def _round_up(x: Tensor) -> Tensor:
    """Float32 >= 0 to the next number of bfloat16, so that no weight exceeds its limit."""
    return ((x.view(torch.int32) + 0xFFFF) & ~0xFFFF).view(torch.float32)


def _quantize_rows(x: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    """Whole numbers within +-limit as float32, and the scale of each row [rows, 1]."""
    largest = x.abs().amax(dim=-1, keepdim=True)
    inverse = divide(limit, largest).masked_fill(largest < _LEAST_MAGNITUDE, 0.0)
    return (x * inverse).round(), torch.div(largest, torch.full_like(largest, limit))


def _column_exponents(blocks: Sequence[Tensor]) -> Tensor:
    """By how many powers of two each column exceeds the median column; int32 [in_features].

    A column's size is the root of its squares, each as a share of its row's, so that large rows do not drown others.
    """
    sizes = sqrt(reduce(torch.add, (_square_shares(block) for block in blocks)))
    mantissa, exponents = torch.frexp(_share(sizes, sizes.median()))
    rounded = exponents.to(torch.int32) - (mantissa < _ROOT_HALF).to(torch.int32)
    return rounded.clamp(-_MAX_EXPONENT, _MAX_EXPONENT).masked_fill(mantissa == 0.0, 0)


def _square_shares(block: Tensor) -> Tensor:
    """[rows, in_features] -> [in_features]."""
    totals = torch.cat([fold(_squares(piece), dim=-1) for piece in _pieces([block], dim=0)])
    return torch.cat([fold(_share(_squares(piece), totals[:, None]), dim=0) for piece in _pieces([block], dim=1)])


def _squares(piece: Tensor) -> Tensor:
    return piece.float().square()


def _pieces(blocks: Sequence[Tensor], dim: int) -> Iterator[Tensor]:
    """Cuts matrices along a dimension, so that what is computed of one piece takes little memory."""
    for block in blocks:
        across = block.shape[1 - dim]
        yield from block.split(max(_ELEMENTS_AT_ONCE // across, 1), dim)


def _share(x: Tensor, of: Tensor) -> Tensor:
    """Divides by what is broadcast; 0 where there is nothing to share."""
    of = of.expand_as(x).contiguous()
    return torch.div(x, of).masked_fill(of < _LEAST_MAGNITUDE, 0.0)
