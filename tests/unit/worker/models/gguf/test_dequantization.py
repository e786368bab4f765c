"""Blocks of GGUF's types as floats: the bits of the package `gguf`, which the format's makers keep."""

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from kakeya_shared.gguf.tensor_types import RUNNABLE, TENSOR_TYPES, TensorType
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.gguf import dequantization
from kakeya_worker.models.gguf.dequantization import dequantized

TYPES = {kind.name: kind for kind in TENSOR_TYPES.values()}
NUM_BLOCKS = 3000


def random_blocks(kind: TensorType) -> NDArray[np.uint8]:
    """Any bytes: each is a valid block; some scales are infinite, or no numbers."""
    generator = np.random.default_rng(kind.block_bytes)
    return generator.integers(0, 256, (NUM_BLOCKS, kind.block_bytes), dtype=np.uint8)


def oracle(blocks: NDArray[np.uint8], kind: TensorType) -> NDArray[np.float32]:
    with np.errstate(all="ignore"):
        numbers = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[kind.name])
    return numbers.astype(np.float32).reshape(-1)


@pytest.mark.parametrize("name", sorted(RUNNABLE))
def test_numbers_are_those_of_the_format_to_the_bit(name: str) -> None:
    kind = TYPES[name]
    blocks = random_blocks(kind)
    numbers = dequantized(memoryview(blocks.tobytes()), kind, blocks.shape[0] * kind.block_size, "x")
    np.testing.assert_array_equal(numbers.view(np.uint32), oracle(blocks, kind).view(np.uint32))
    assert len(np.unique(numbers)) > 1000


def test_it_does_not_matter_how_many_blocks_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = TYPES["Q4_K"]
    blocks = random_blocks(kind)
    monkeypatch.setattr(dequantization, "_CHUNK_NUMBERS", 7 * kind.block_size)
    numbers = dequantized(memoryview(blocks.tobytes()), kind, blocks.shape[0] * kind.block_size, "x")
    np.testing.assert_array_equal(numbers.view(np.uint32), oracle(blocks, kind).view(np.uint32))


def test_other_types_are_refused_by_their_name() -> None:
    for name in TYPES.keys() - RUNNABLE:
        with pytest.raises(ModelRefused, match=rf"tensor blk\.0\.attn_q is of type {name}; what can run: BF16, F16"):
            dequantized(memoryview(bytes(TYPES[name].block_bytes)), TYPES[name], TYPES[name].block_size, "blk.0.attn_q")


def test_types_are_those_of_the_format() -> None:
    sizes = {kind.name: (kind.value, size) for kind, size in gguf.GGML_QUANT_SIZES.items()}
    assert {kind.name: (number, (kind.block_size, kind.block_bytes)) for number, kind in TENSOR_TYPES.items()} == sizes
