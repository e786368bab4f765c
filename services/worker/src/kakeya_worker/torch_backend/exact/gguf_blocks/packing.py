"""GGUF's blocks in the order in which a kernel reads them: panels of 64 output channels, block after block.

`kernel/blocks.h` says how a block lies there.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from kakeya_worker.models.gguf.block_integers import BlockType
from kakeya_worker.torch_backend.exact.packing import PANEL_ROWS
from kakeya_worker.torch_backend.weights import BlockMatrix, Scales

_UNIT = 32  # inputs whose weights lie together
_QUADS, _QUAD = 8, 4  # of a unit; inputs of one
_PANELS_AT_ONCE = 16


@dataclass(frozen=True)
class PackedBlocks:
    """A BlockMatrix as the kernel reads it; what lies outside the matrix has scales of 0.

    Attributes:
        values: uint8; [panels, bytes of a panel].
    """

    kind: BlockType
    values: Tensor
    out_features: int
    in_features: int


def pack_blocks(matrix: BlockMatrix) -> PackedBlocks:
    """The inverse of `unpack_blocks`."""
    return PackedBlocks(matrix.kind, torch.cat(list(pack_panels(matrix))), *matrix.shape)


def pack_panels(matrix: BlockMatrix) -> Iterator[Tensor]:
    """The values of a PackedBlocks, a few panels at a time."""
    step = _PANELS_AT_ONCE * PANEL_ROWS
    for first in range(0, matrix.shape[0], step):
        yield _pack(matrix.rows(slice(first, first + step)))


def packed_shape(kind: BlockType, out_features: int, in_features: int) -> tuple[int, int]:
    """Of a PackedBlocks' values."""
    num_blocks = in_features // kind.size
    block_bytes = _head_bytes(kind) + kind.size * PANEL_ROWS * kind.num_bits // 8
    return -(-out_features // PANEL_ROWS), num_blocks * block_bytes


def _pack(matrix: BlockMatrix) -> Tensor:
    """[panels, bytes of a panel]."""
    out_features, in_features = matrix.shape
    kind, scales = matrix.kind, matrix.scales
    num_blocks = in_features // kind.size

    def panels(rows: Tensor) -> Tensor:
        """[out_features, n] -> [panels, blocks, n / blocks, 64]."""
        whole: Tensor = pad(rows, (0, 0, 0, -out_features % PANEL_ROWS))
        blocks: Tensor = whole.unflatten(0, (-1, PANEL_ROWS)).unflatten(2, (num_blocks, -1)).permute(0, 2, 3, 1)
        return blocks

    def in_pairs(runs: Tensor) -> Tensor:
        pairs: Tensor = panels(runs).unflatten(2, (-1, 2)).transpose(3, 4)
        return pairs

    head = [panels(scales.of_blocks), *([] if scales.offsets is None else [panels(scales.offsets)])]
    head += [in_pairs(runs) for runs in (scales.of_runs, scales.minima) if runs is not None]
    quads = panels(matrix.weights).unflatten(2, (-1, _QUADS, _QUAD)).transpose(4, 5)
    units = _packed_units(kind, quads)  # of [panels, blocks, units, quads, 64, 4]
    parts = [_bytes(part).flatten(2) for part in head] + [units.flatten(2)]
    return torch.cat(parts, dim=2).flatten(1)


def unpack_blocks(packed: PackedBlocks) -> BlockMatrix:
    """The inverse of `pack_blocks`: a copy in memory of its own."""
    kind = packed.kind
    num_blocks = packed.in_features // kind.size
    blocks = packed.values.unflatten(1, (num_blocks, -1))  # [panels, blocks, bytes]
    runs = PANEL_ROWS * kind.num_runs if kind.has_run_scales else 0
    minima = 1 if kind.has_minima else 0
    sizes = [2 * PANEL_ROWS, 2 * PANEL_ROWS * minima, runs, runs * minima, blocks.shape[2] - _head_bytes(kind)]
    of_blocks, offsets, of_runs, of_minima, units = blocks.split(sizes, dim=2)

    def rows(panels: Tensor) -> Tensor:
        """[panels, blocks, n, 64] -> [out_features, blocks * n]."""
        return panels.permute(0, 3, 1, 2).flatten(2).flatten(0, 1)[: packed.out_features].contiguous()

    def halves(part: Tensor) -> Tensor:
        return rows(part.contiguous().view(torch.float16).unsqueeze(2))

    def out_of_pairs(part: Tensor) -> Tensor:
        pairs = part.contiguous().view(torch.int8).unflatten(2, (-1, PANEL_ROWS, 2))
        return rows(pairs.transpose(3, 4).flatten(2, 3))

    quads = _unpacked_units(kind, units.unflatten(2, (kind.size // _UNIT, -1)))
    scales = Scales(
        halves(of_blocks),
        halves(offsets) if minima else None,
        out_of_pairs(of_runs) if runs else None,
        out_of_pairs(of_minima) if runs and minima else None,
    )
    return BlockMatrix(kind, rows(quads.transpose(4, 5).flatten(2, 4)), scales)


def _head_bytes(kind: BlockType) -> int:
    """Of the scales and minima of a block of a panel."""
    return PANEL_ROWS * (2 + (kind.num_runs if kind.has_run_scales else 0)) * (2 if kind.has_minima else 1)


def _packed_units(kind: BlockType, quads: Tensor) -> Tensor:
    """[panels, blocks, units, 8, 64, 4] -> [panels, blocks, units, bytes]."""
    if kind.num_bits == 8:
        return quads.flatten(3)
    low, high = quads & 15, quads >> 4
    parts = [low[..., 0::2, :, :] | low[..., 1::2, :, :] << 4]
    if kind.num_bits == 5:
        parts.append(_together(high, _QUADS, 1))
    if kind.num_bits == 6:
        parts.append(_together(high, _QUADS // 2, 2))
    return torch.cat([part.flatten(3) for part in parts], dim=3)


def _unpacked_units(kind: BlockType, units: Tensor) -> Tensor:
    """The inverse of `_packed_units`."""
    if kind.num_bits == 8:
        whole: Tensor = units.unflatten(3, (_QUADS, PANEL_ROWS, _QUAD))
        return whole
    num_low = _UNIT * PANEL_ROWS // 2
    low = units[..., :num_low].unflatten(3, (_QUADS // 2, PANEL_ROWS, _QUAD))
    quads = torch.stack([low & 15, low >> 4], dim=4).flatten(3, 4)
    if kind.num_bits == 4:
        return quads
    num_fields, num_bits = (_QUADS, 1) if kind.num_bits == 5 else (_QUADS // 2, 2)
    high = units[..., num_low:].unflatten(3, (-1, PANEL_ROWS, _QUAD))
    fields = [high >> (num_bits * field) & ((1 << num_bits) - 1) for field in range(num_fields)]
    return quads | torch.stack(fields, dim=4).flatten(3, 4) << 4


def _together(high: Tensor, num_fields: int, num_bits: int) -> Tensor:
    """So many quads' bits in one byte, the first quad's lowest; [..., 8, 64, 4] -> [..., 8 / fields, 64, 4]."""
    fields = high.unflatten(3, (-1, num_fields))
    together: Tensor = fields[:, :, :, :, 0]
    for field in range(1, num_fields):
        together = together | fields[:, :, :, :, field] << (num_bits * field)
    return together


def _bytes(part: Tensor) -> Tensor:
    """Of the last two dimensions at least, which become one."""
    return part.contiguous().flatten(2).view(torch.uint8)
