"""Random weights that make a lively model: a pure function of a name, the same to the bit on every machine.

They are made of integers, so that no version of any library plays a part.
"""

import functools
import math
import zlib

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.sampling.philox import philox4x32

# Large enough for the layers to outweigh the residual stream, which would else copy the last token for ever, and for
# attention to tell keys apart; small enough for bfloat16 to follow.
_GAIN = 2.2  # standard deviation of a matrix, times the root of its inputs
_QUERY_KEY_GAIN = 1.5
_QUERY_NORM_MEAN = 2.0
_EMBEDDING_DEVIATION = 0.05
_BIAS_DEVIATION = 0.3
_NORM_DEVIATION = 0.2  # not all the same, so that leaving one out shows


def random_tensor(variant: str, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """One tensor of a checkpoint, by the variant's name and its own. It is the caller's."""
    return _random_tensor(variant, name, shape).copy()


@functools.lru_cache(1024)
def _random_tensor(variant: str, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """To make them takes half of the time of tests that write a checkpoint each."""
    bells = _bells(f"{variant}/{name}", math.prod(shape)).reshape(shape)
    layer = name.removesuffix(".weight").rpartition(".")[2]
    if layer.endswith("norm"):
        mean = _QUERY_NORM_MEAN if layer == "q_norm" else 1.0
        return ((1.0 + bells * _NORM_DEVIATION) * mean).astype(np.float32)
    if name.endswith(".bias"):
        deviation = _BIAS_DEVIATION
    elif layer in ("embed_tokens", "lm_head"):
        deviation = _EMBEDDING_DEVIATION
    else:
        deviation = (_QUERY_KEY_GAIN if layer in ("q_proj", "k_proj") else _GAIN) / math.sqrt(shape[-1])
    return (bells * deviation).astype(np.float32)


def _bells(name: str, num: int) -> NDArray[np.float64]:
    """Numbers of mean 0 and deviation 1, nearly normal: sums of four words of Philox; [num]."""
    words = random_words(name, num)
    total = words[0] + words[1] + words[2] + words[3]  # below 2^34, exact
    return (total.astype(np.float64) * 2.0**-32 - 2.0) * math.sqrt(3.0)


def random_words(name: str, num: int) -> tuple[NDArray[np.uint64], ...]:
    """Four random words below 2^32 for each of so many places; each [num]."""
    places = np.arange(num, dtype=np.uint64)
    zeros = np.zeros_like(places)
    return philox4x32((places, zeros, zeros, zeros), (zlib.crc32(name.encode()), 0))


def bits_of(tensor: NDArray[np.float32]) -> NDArray[np.uint32]:
    return np.ascontiguousarray(tensor).view(np.uint32)


def to_bfloat16(tensor: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rounds to the nearest, ties to even."""
    bits = bits_of(tensor)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32)
