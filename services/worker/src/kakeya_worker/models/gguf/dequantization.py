"""Blocks of GGUF's tensor types as float32, by the operations and in the order of ggml's reference.

Format: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h, and `dequantize_row_*` in ggml-quants.c. Scales
are float16; each number takes one or two roundings to float32.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kakeya_shared.gguf.tensor_types import TensorType
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.gguf.block_integers import BLOCK_TYPES, BlockType, Bytes, fields, halves, integers, nibbles

Floats = NDArray[np.float32]

_CHUNK_NUMBERS: Final = 1 << 20
"""As many are made at once: what lies between blocks and numbers takes several times their memory."""
_FOUR: Final = np.uint8(4)
_IQ4_NL: Final = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def dequantized(content: memoryview, kind: TensorType, num: int, name: str) -> Floats:
    """All numbers of a tensor; [num].

    Args:
        content: as it is stored.
        name: of the tensor, for errors.

    Raises:
        ModelRefused: its type is not one of those that can be read.
    """
    read = _READERS.get(kind.name)
    if read is None:
        raise ModelRefused(f"tensor {name} is of type {kind.name}; what can run: {', '.join(sorted(_READERS))}")
    blocks = np.frombuffer(content, np.uint8).reshape(-1, kind.block_bytes)  # [blocks, bytes]
    numbers = np.empty((len(blocks), kind.block_size), np.float32)  # [blocks, numbers of a block]
    step = max(1, _CHUNK_NUMBERS // kind.block_size)
    with np.errstate(all="ignore"):  # who uses the numbers refuses those that are not finite
        for first in range(0, len(blocks), step):
            chunk = slice(first, first + step)
            numbers[chunk] = read(blocks[chunk])
    return numbers.reshape(num)


def _float32(blocks: Bytes) -> Floats:
    return blocks.view("<f4").astype(np.float32)


def _float16(blocks: Bytes) -> Floats:
    return blocks.view("<f2").astype(np.float32)


def _bfloat16(blocks: Bytes) -> Floats:
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _iq4_nl(blocks: Bytes) -> Floats:
    return _scale(blocks, 0) * _IQ4_NL[nibbles(blocks[:, 2:], 16)]


def _iq4_xs(blocks: Bytes) -> Floats:
    """Eight groups of 32 numbers out of a table; the scales have six bits."""
    scales = fields(blocks[:, 4:8], 1, (0, 4), 15) | fields(blocks[:, 2:4], 1, (0, 2, 4, 6), 3) << _FOUR
    steps = _scale(blocks, 0) * (scales.astype(np.float32) - 32)  # [blocks, 8]
    return _flat(steps[..., None] * _IQ4_NL[nibbles(blocks[:, 8:], 16)].reshape(-1, 8, 32))


def _q2_k(blocks: Bytes) -> Floats:
    """Sixteen groups of sixteen numbers of two bits, each group with a scale and a minimum of four bits."""
    scales, minima = (blocks[:, :16] & 15).astype(np.float32), (blocks[:, :16] >> 4).astype(np.float32)
    quants = fields(blocks[:, 16:80], 32, (0, 2, 4, 6), 3).reshape(-1, 16, 16)
    scales, minima = _scale(blocks, 80) * scales, _scale(blocks, 82) * minima  # [blocks, 16]
    return _flat(scales[..., None] * quants.astype(np.float32) - minima[..., None])


def _q3_k(blocks: Bytes) -> Floats:
    """Sixteen groups of sixteen numbers of three bits; the scales have six. A high bit of 1 stands for no offset."""
    low = fields(blocks[:, 32:96], 32, (0, 2, 4, 6), 3)
    high = fields(blocks[:, :32], 32, range(8), 1)
    quants = low.astype(np.float32) - np.float32(4) * (1 - high).astype(np.float32)
    packed = blocks[:, 96:108]
    scales = fields(packed[:, :8], 8, (0, 4), 15) | fields(packed[:, 8:], 4, (0, 2, 4, 6), 3) << _FOUR
    steps = _scale(blocks, 108) * (scales.astype(np.float32) - 32)  # [blocks, 16]
    return _flat(steps[..., None] * quants.reshape(-1, 16, 16))


def _from_integers(kind: BlockType, blocks: Bytes) -> Floats:
    found = integers(kind, blocks)
    scales = found.scales.astype(np.float32)[:, None]  # [blocks, 1]
    if found.run_scales is not None:
        scales = scales * found.run_scales.astype(np.float32)  # [blocks, runs]
    weights = found.weights.reshape(-1, kind.num_runs, kind.run).astype(np.float32) - np.float32(kind.zero)
    numbers = scales[..., None] * weights
    if found.offsets is not None:
        offsets = found.offsets.astype(np.float32)[:, None]  # [blocks, 1]
        if found.minima is None:
            numbers = numbers + offsets[..., None]
        else:
            numbers = numbers - (offsets * found.minima.astype(np.float32))[..., None]
    return _flat(numbers)


def _scale(blocks: Bytes, at: int) -> Floats:
    """The float16 at a byte of each block; [blocks, 1]."""
    return halves(blocks, at).astype(np.float32)[:, None]


def _flat(groups: Floats) -> Floats:
    return groups.reshape(len(groups), -1)


_READERS: Final[Mapping[str, Callable[[Bytes], Floats]]] = {
    "F32": _float32,
    "F16": _float16,
    "BF16": _bfloat16,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    **{name: partial(_from_integers, kind) for name, kind in BLOCK_TYPES.items()},
}
