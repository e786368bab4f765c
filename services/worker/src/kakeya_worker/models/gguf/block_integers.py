"""Blocks of GGUF's tensor types as the whole numbers and scales that they hold.

Format: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Halves = NDArray[np.float16]

_FOUR: Final = np.uint8(4)


@dataclass(frozen=True)
class BlockType:
    """One of GGUF's types whose weights are whole numbers times scales.

    Attributes:
        name: GGUF's.
        num_bits: of a weight.
        run: so many weights, one behind the other, have a whole scale of their own in the block's.
        num_runs: of a block; where there is one, it has the block's scale.
        zero: is taken from each weight as it is stored.
        has_minima: whether something is added to a run's weights, or taken from them, behind that.
    """

    name: str
    num_bits: int
    run: int
    num_runs: int
    zero: int
    has_minima: bool

    @property
    def size(self) -> int:
        """How many weights a block has."""
        return self.run * self.num_runs

    @property
    def has_run_scales(self) -> bool:
        return self.num_runs > 1


class BlockIntegers(NamedTuple):
    """What blocks hold. Weight i of run r is

        scale * (weights[i] - zero) + offset                          where a block is one run,
        scale * run_scales[r] * (weights[i] - zero) - offset * minima[r]   where it has several.

    Attributes:
        weights: [blocks, size].
        scales: [blocks].
        offsets: [blocks]; None where the type has no minima.
        run_scales: int8 [blocks, runs]; None where a block is one run.
        minima: int8 [blocks, runs]; None where a block is one run, or has none.
    """

    weights: Bytes
    scales: Halves
    offsets: Halves | None = None
    run_scales: NDArray[np.int8] | None = None
    minima: NDArray[np.int8] | None = None


def integers(kind: BlockType, blocks: Bytes) -> BlockIntegers:
    """Blocks as a file has them; [blocks, bytes]."""
    return _READERS[kind.name](blocks)


def _q8_0(blocks: Bytes) -> BlockIntegers:
    return BlockIntegers(blocks[:, 2:] ^ np.uint8(128), halves(blocks, 0))


def _q4_0(blocks: Bytes) -> BlockIntegers:
    return BlockIntegers(nibbles(blocks[:, 2:], 16), halves(blocks, 0))


def _q4_1(blocks: Bytes) -> BlockIntegers:
    return BlockIntegers(nibbles(blocks[:, 4:], 16), halves(blocks, 0), halves(blocks, 2))


def _q5_0(blocks: Bytes) -> BlockIntegers:
    return BlockIntegers(_five_bits(blocks[:, 2:6], blocks[:, 6:]), halves(blocks, 0))


def _q5_1(blocks: Bytes) -> BlockIntegers:
    return BlockIntegers(_five_bits(blocks[:, 4:8], blocks[:, 8:]), halves(blocks, 0), halves(blocks, 2))


def _q4_k(blocks: Bytes) -> BlockIntegers:
    return _with_minima(blocks, fields(blocks[:, 16:], 32, (0, 4), 15))


def _q5_k(blocks: Bytes) -> BlockIntegers:
    high = fields(blocks[:, 16:48], 32, range(8), 1)
    return _with_minima(blocks, fields(blocks[:, 48:], 32, (0, 4), 15) | high << _FOUR)


def _q6_k(blocks: Bytes) -> BlockIntegers:
    """Sixteen runs of sixteen weights."""
    weights = fields(blocks[:, :128], 64, (0, 4), 15) | fields(blocks[:, 128:192], 32, (0, 2, 4, 6), 3) << _FOUR
    return BlockIntegers(weights, halves(blocks, 208), run_scales=blocks[:, 192:208].view(np.int8))


def _with_minima(blocks: Bytes, weights: Bytes) -> BlockIntegers:
    """Eight runs of 32 weights, each with a scale and a minimum of six bits (Q4_K, Q5_K)."""
    first, second, rest = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate([first & 63, rest & 15 | (first >> 6) << 4], axis=1)
    minima = np.concatenate([second & 63, rest >> 4 | (second >> 6) << 4], axis=1)
    return BlockIntegers(weights, halves(blocks, 0), halves(blocks, 2), scales.view(np.int8), minima.view(np.int8))


def halves(blocks: Bytes, at: int) -> Halves:
    """The float16 at a byte of each block; [blocks]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2")[:, 0]


def nibbles(packed: Bytes, width: int) -> Bytes:
    """The low halves of so many bytes, then their high ones, and so on."""
    return fields(packed, width, (0, 4), 15)


def fields(packed: Bytes, width: int, shifts: "range | tuple[int, ...]", mask: int) -> Bytes:
    """Bits of so many bytes at the first place, then at the next, then of the bytes that follow; [blocks, numbers]."""
    groups = np.ascontiguousarray(packed).reshape(len(packed), -1, 1, width)
    found: Bytes = groups >> np.array(shifts, np.uint8)[:, None] & np.uint8(mask)
    return found.reshape(len(packed), -1)


def _five_bits(high: Bytes, packed: Bytes) -> Bytes:
    """32 numbers whose fifth bits lie in four bytes."""
    bits = np.unpackbits(np.ascontiguousarray(high), axis=1, bitorder="little")
    return nibbles(packed, 16) | bits << _FOUR


_TYPES: Final = (
    BlockType("Q4_0", 4, 32, 1, 8, has_minima=False),
    BlockType("Q4_1", 4, 32, 1, 0, has_minima=True),
    BlockType("Q5_0", 5, 32, 1, 16, has_minima=False),
    BlockType("Q5_1", 5, 32, 1, 0, has_minima=True),
    BlockType("Q8_0", 8, 32, 1, 128, has_minima=False),
    BlockType("Q4_K", 4, 32, 8, 0, has_minima=True),
    BlockType("Q5_K", 5, 32, 8, 0, has_minima=True),
    BlockType("Q6_K", 6, 16, 16, 32, has_minima=False),
)
BLOCK_TYPES: Final[Mapping[str, BlockType]] = {kind.name: kind for kind in _TYPES}

_READERS: Final[Mapping[str, Callable[[Bytes], BlockIntegers]]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
