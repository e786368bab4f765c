"""Quantized matrices in the order in which a kernel reads them: panels of 64 output channels, four inputs at a time.

Weights are unsigned, w + 128, since the x86 instructions for products of bytes multiply unsigned by signed ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from kakeya_worker.torch_backend.exact.quantization import QuantizedMatrix, num_groups

PANEL_ROWS = 64
QUAD = 4  # inputs of one channel that lie beside one another
ZERO = 128  # the weight 0
_PANELS_AT_ONCE = 16


@dataclass(frozen=True)
class PackedMatrix:
    """A QuantizedMatrix of which weight (64 p + o, 4 k + j) is values[p, k, o, j] - 128.

    What lies outside the matrix has weight 0 and scale 0.

    Attributes:
        values: uint8; [panels, in_features / 4 rounded up, 64, 4].
        scales: bfloat16; [panels, groups, 64].
        exponents: int8; [in_features].
    """

    values: Tensor
    scales: Tensor
    exponents: Tensor
    out_features: int

    @property
    def in_features(self) -> int:
        return self.exponents.shape[0]


def packed_shape(out_features: int, in_features: int) -> tuple[int, int, int, int]:
    """The shape of a PackedMatrix's values."""
    return -(-out_features // PANEL_ROWS), -(-in_features // QUAD), PANEL_ROWS, QUAD


def scales_shape(out_features: int, in_features: int) -> tuple[int, int, int]:
    """The shape of a PackedMatrix's scales."""
    return -(-out_features // PANEL_ROWS), num_groups(in_features), PANEL_ROWS


def pack(matrix: QuantizedMatrix) -> PackedMatrix:
    """The inverse of `unpack`; needs little memory beside the matrix and the result."""
    values = torch.empty(packed_shape(*matrix.values.shape), dtype=torch.uint8)
    for target, panels in zip(values.split(_PANELS_AT_ONCE), pack_values(matrix.values), strict=True):
        target.copy_(panels)
    out_features = matrix.values.shape[0]
    return PackedMatrix(values, pack_scales(matrix.scales), matrix.exponents, out_features)


def pack_values(values: Tensor) -> Iterator[Tensor]:
    """Int8 [out_features, in_features] -> uint8 [some of the panels, in_features / 4 rounded up, 64, 4], in order."""
    for rows in values.split(_PANELS_AT_ONCE * PANEL_ROWS):
        num_panels, num_quads, _, _ = packed_shape(*rows.shape)
        whole = pad(rows, (0, num_quads * QUAD - rows.shape[1], 0, num_panels * PANEL_ROWS - rows.shape[0]))
        panels = whole.view(num_panels, PANEL_ROWS, num_quads, QUAD).transpose(1, 2)
        yield _flip_sign(panels.view(torch.uint8))


def pack_scales(scales: Tensor) -> Tensor:
    """Bfloat16 [out_features, groups] -> [panels, groups, 64]."""
    whole: Tensor = pad(scales, (0, 0, 0, -scales.shape[0] % PANEL_ROWS)).unflatten(0, (-1, PANEL_ROWS))
    return whole.transpose(1, 2).contiguous()


def unpack(packed: PackedMatrix) -> QuantizedMatrix:
    """The inverse of `pack`: a copy in memory of its own."""
    values = torch.empty(packed.out_features, packed.in_features, dtype=torch.int8)
    targets = values.split(_PANELS_AT_ONCE * PANEL_ROWS)
    for target, panels in zip(targets, packed.values.split(_PANELS_AT_ONCE), strict=True):
        rows = _flip_sign(panels.transpose(1, 2)).view(torch.int8).flatten(0, 1).flatten(1)
        target.copy_(rows[: target.shape[0], : target.shape[1]])
    scales = packed.scales.transpose(1, 2).flatten(0, 1)[: packed.out_features].clone()
    return QuantizedMatrix(values, scales, packed.exponents.clone())


def _flip_sign(values: Tensor) -> Tensor:
    """Between w and w + 128 modulo 256, in contiguous memory of its own."""
    return values.clone(memory_format=torch.contiguous_format).bitwise_xor_(ZERO)
