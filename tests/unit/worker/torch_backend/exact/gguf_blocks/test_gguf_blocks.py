"""Matrices of GGUF's blocks in exact mode: their numbers, how they are packed, and what they come to."""

from functools import partial
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from kakeya_shared.gguf.tensor_types import TENSOR_TYPES, TensorType
from kakeya_worker.models.gguf.block_integers import BLOCK_TYPES, BlockType, integers
from kakeya_worker.torch_backend.exact import integer_product
from kakeya_worker.torch_backend.exact.gguf_blocks.linear import BlockLinear
from kakeya_worker.torch_backend.exact.gguf_blocks.packing import (
    PackedBlocks,
    pack_blocks,
    packed_shape,
    unpack_blocks,
)
from kakeya_worker.torch_backend.exact.kernel.library import Kernel, load, variants
from kakeya_worker.torch_backend.exact.kernel.operations import Operations
from kakeya_worker.torch_backend.exact.matrices import Matrix
from kakeya_worker.torch_backend.exact.packing import PackedMatrix
from kakeya_worker.torch_backend.exact.quantization import quantize_table
from kakeya_worker.torch_backend.exact.weight_cache import Conversion, WeightCache
from kakeya_worker.torch_backend.weights import BlockMatrix, block_matrix
from tests.unit.worker.torch_backend.exact.gguf_blocks.blocks_reference import BlocksLinear

pytestmark = pytest.mark.skipif(not variants(), reason="no kernel library: this machine has no C++ compiler")

TYPES = {kind.name: kind for kind in TENSOR_TYPES.values()}
HALVES = {name: (0, 2) if kind.has_minima else (0,) for name, kind in BLOCK_TYPES.items()} | {"Q6_K": (208,)}


@pytest.fixture(params=BLOCK_TYPES)
def kind(request: pytest.FixtureRequest) -> BlockType:
    return BLOCK_TYPES[request.param]


@pytest.fixture(params=variants())
def operations(request: pytest.FixtureRequest) -> Operations:
    library = load()
    assert library is not None
    return Operations(Kernel(library, request.param))


def random_blocks(kind: BlockType, num: int) -> NDArray[np.uint8]:
    """Any bytes, but that scales are no infinities: [blocks, bytes]."""
    generator = np.random.default_rng(kind.size + kind.num_bits)
    blocks = generator.integers(0, 256, (num, TYPES[kind.name].block_bytes), dtype=np.uint8)
    for at in HALVES[kind.name]:
        halves = generator.normal(0, 0.02, (num, 1)).astype("<f2")
        halves[::7] = np.float16(6e-8)  # the least there is
        blocks[:, at : at + 2] = halves.view(np.uint8)
    return blocks


def matrix_of(kind: BlockType, blocks: NDArray[np.uint8], out_features: int) -> BlockMatrix:
    return block_matrix(kind, integers(kind, blocks), out_features)


def oracle(kind: TensorType, blocks: NDArray[np.uint8], out_features: int) -> NDArray[np.float32]:
    numbers = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[kind.name])
    return numbers.astype(np.float32).reshape(out_features, -1)


def test_the_numbers_are_those_of_the_format(kind: BlockType) -> None:
    blocks = random_blocks(kind, 90)
    table = BlockLinear(matrix_of(kind, blocks, 30), None, integer_product.by_floats)
    rows = table.rows(torch.arange(30)).numpy()
    np.testing.assert_array_equal(rows, oracle(TYPES[kind.name], blocks, 30))


@pytest.mark.parametrize(("out_features", "num_blocks"), [(1, 1), (64, 2), (72, 3), (1100, 1)])
def test_what_is_packed_is_as_before(kind: BlockType, out_features: int, num_blocks: int) -> None:
    matrix = matrix_of(kind, random_blocks(kind, out_features * num_blocks), out_features)
    packed = pack_blocks(matrix)
    assert packed.values.shape == packed_shape(kind, *matrix.shape)
    again = unpack_blocks(packed)
    assert torch.equal(again.weights, matrix.weights)
    for ours, theirs in zip(again.scales, matrix.scales, strict=True):
        if ours is None or theirs is None:
            assert ours is theirs
        else:
            assert torch.equal(ours, theirs)


def test_it_takes_about_the_bytes_of_the_file() -> None:
    taken = {name: packed_shape(kind, 64, 256)[1] / 64 / 256 * 8 for name, kind in BLOCK_TYPES.items()}
    in_file = {name: TYPES[name].block_bytes / TYPES[name].block_size * 8 for name in BLOCK_TYPES}
    assert {name: taken[name] - in_file[name] for name in BLOCK_TYPES} == {
        name: 0.125 if name in ("Q4_K", "Q5_K") else 0.0
        for name in BLOCK_TYPES  # a byte for six bits of each scale
    }


@pytest.mark.parametrize("num_tokens", [1, 3, 6])
def test_a_layer_computes_the_bits_of_the_reference(operations: Operations, kind: BlockType, num_tokens: int) -> None:
    out_features, num_blocks = 70, 3
    blocks = random_blocks(kind, out_features * num_blocks)
    matrix = matrix_of(kind, blocks, out_features)
    generator = torch.Generator().manual_seed(num_tokens)
    x, bias = (torch.randn(*shape, generator=generator) for shape in ((num_tokens, matrix.shape[1]), (out_features,)))
    x[0, ::5] = 0.0
    reference = BlocksLinear(kind, integers(kind, blocks), out_features, bias.numpy())
    wanted = np.stack([reference(token) for token in x.numpy()])
    assert np.abs(wanted).max() > 1
    np.testing.assert_array_equal(BlockLinear(matrix, bias, integer_product.by_floats)(x).numpy(), wanted)
    np.testing.assert_array_equal(operations.linear(pack_blocks(matrix), x, bias).numpy(), wanted)


def test_a_layer_is_near_to_its_numbers(kind: BlockType) -> None:
    """By the format's own package, and a product of floats."""
    blocks = random_blocks(kind, 64 * 4)
    x = torch.randn(5, 4 * kind.size, generator=torch.Generator().manual_seed(1))
    y = BlockLinear(matrix_of(kind, blocks, 64), None, integer_product.by_floats)(x)
    weights = torch.from_numpy(oracle(TYPES[kind.name], blocks, 64)).double()
    wanted = x.double() @ weights.T
    assert float((y - wanted).abs().max() / wanted.abs().max()) < 1e-4


def test_rows_of_a_table_are_read_out_of_what_is_packed(operations: Operations, kind: BlockType) -> None:
    blocks = random_blocks(kind, 70 * 2)
    packed = pack_blocks(matrix_of(kind, blocks, 70))
    rows = torch.tensor([0, 1, 63, 64, 69])
    found = operations.embed(packed, rows).numpy()
    np.testing.assert_array_equal(found, oracle(TYPES[kind.name], blocks, 70)[rows.numpy()])


def test_what_is_kept_of_it_is_mapped_again(tmp_path: Path) -> None:
    made = {name: matrix_of(kind, random_blocks(kind, 70 * 2), 70) for name, kind in BLOCK_TYPES.items()}
    table = quantize_table(torch.randn(30, 64))

    def forbidden() -> Matrix:
        raise AssertionError("read again")

    shapes = {name: matrix.shape for name, matrix in made.items()} | {"table": table.shape}
    first, second = (WeightCache(tmp_path / "model", num_weights=10_000) for _ in range(2))
    everything: dict[str, Matrix] = {**made, "table": table}
    first.fill(Conversion(name, shapes[name], partial(everything.__getitem__, name)) for name in shapes)
    second.fill(Conversion(name, shapes[name], forbidden) for name in shapes)
    for name, matrix in made.items():
        for cache in (first, second):
            found = cache.matrix(Conversion(name, shapes[name], forbidden))
            assert isinstance(found, PackedBlocks)
            assert found.kind == BLOCK_TYPES[name]
            assert torch.equal(found.values, pack_blocks(matrix).values)
    assert isinstance(second.matrix(Conversion("table", shapes["table"], forbidden)), PackedMatrix)
