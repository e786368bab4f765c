"""Blocks of Q4_K, Q5_K and Q6_K, plainly rounded: the package `gguf` reads these types and does not make them.

Format: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h.
"""

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


def quantize(numbers: Floats, kind: str) -> Bytes:
    """Rows of a multiple of 256 numbers: [rows, numbers] -> [rows, bytes]."""
    blocks = numbers.astype(np.float32).reshape(-1, 256)
    made = _q6_k(blocks) if kind == "Q6_K" else _with_minima(blocks, {"Q4_K": 4, "Q5_K": 5}[kind])
    return made.reshape(len(numbers), -1)


def _with_minima(blocks: Floats, num_bits: int) -> Bytes:
    runs = blocks.reshape(-1, 8, 32)
    minima = -np.minimum(runs.min(axis=2), 0)
    scales = (runs.max(axis=2) + minima) / ((1 << num_bits) - 1)
    of_scales, of_minima = (_half(each.max(axis=1) / 63) for each in (scales, minima))
    scales, minima = _parts(scales, of_scales, 0, 63), _parts(minima, of_minima, 0, 63)
    steps = (of_scales.astype(np.float32)[:, None] * scales)[..., None]
    shifted = runs + (of_minima.astype(np.float32)[:, None] * minima)[..., None]
    weights = _parts(shifted, steps, 0, (1 << num_bits) - 1).astype(np.uint8)
    low, high = weights & 15, weights >> 4
    nibbles = low[:, 0::2] | low[:, 1::2] << 4
    fifth = np.zeros((len(blocks), 32), np.uint8)
    for run in range(8):
        fifth |= high[:, run] << run
    s, m = scales.astype(np.uint8), minima.astype(np.uint8)
    packed = [s[:, :4] | s[:, 4:] >> 4 << 6, m[:, :4] | m[:, 4:] >> 4 << 6, s[:, 4:] & 15 | (m[:, 4:] & 15) << 4]
    halves = [each.view(np.uint8).reshape(-1, 2) for each in (of_scales, of_minima)]
    above = [fifth] if num_bits == 5 else []
    return np.concatenate([*halves, *packed, *above, nibbles.reshape(-1, 128)], axis=1)


def _q6_k(blocks: Floats) -> Bytes:
    runs = blocks.reshape(-1, 16, 16)
    scales = np.abs(runs).max(axis=2) / 31
    of_scales = _half(scales.max(axis=1) / 127)
    scales = _parts(scales, of_scales, -128, 127)
    steps = (of_scales.astype(np.float32)[:, None] * scales)[..., None]
    weights = (_parts(runs, steps, -32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)  # halves of 128, four times 32
    low, high = weights & 15, weights >> 4
    nibbles = low[:, :, :2] | low[:, :, 2:] << 4
    above = high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6
    parts = [nibbles.reshape(-1, 128), above.reshape(-1, 64), scales.astype(np.int8).view(np.uint8)]
    return np.concatenate([*parts, of_scales.view(np.uint8).reshape(-1, 2)], axis=1)


def _half(numbers: Floats) -> NDArray[np.float16]:
    return np.ascontiguousarray(numbers.astype("<f2"))


def _parts(numbers: Floats, of: NDArray[np.floating], least: int, most: int) -> Floats:
    """How often it goes into them, to the nearest whole number in a range."""
    of = of.astype(np.float32)
    of = of.reshape(of.shape + (1,) * (numbers.ndim - of.ndim))
    quotient = np.divide(numbers, of, out=np.zeros_like(numbers), where=of != 0)
    return np.clip(np.rint(quotient), least, most)
