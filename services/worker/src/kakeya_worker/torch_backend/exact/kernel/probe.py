"""A look at the kernel before it is relied upon: does it compute what the eager form computes, to the bit?

Compilers differ, and one that fuses or reorders what it must not would be found here, before a session has other bits.
"""

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kakeya_worker.engine.sampling.gumbel import Survivors, draw
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.gguf.block_integers import BLOCK_TYPES, BlockType
from kakeya_worker.torch_backend.exact import integer_product
from kakeya_worker.torch_backend.exact.arithmetic import exp
from kakeya_worker.torch_backend.exact.attention.exact_kv import exact_kv
from kakeya_worker.torch_backend.exact.attention.int8_kv import as_queries, spread
from kakeya_worker.torch_backend.exact.attention.key_blocks import BLOCK, KeyBlocks
from kakeya_worker.torch_backend.exact.attention.row_view import as_view
from kakeya_worker.torch_backend.exact.gguf_blocks.linear import BlockLinear
from kakeya_worker.torch_backend.exact.gguf_blocks.packing import pack_blocks
from kakeya_worker.torch_backend.exact.kernel import build
from kakeya_worker.torch_backend.exact.kernel.kernel_draw import KernelDraw
from kakeya_worker.torch_backend.exact.kernel.library import Kernel
from kakeya_worker.torch_backend.exact.kernel.operations import Operations
from kakeya_worker.torch_backend.exact.linear import Int8Linear
from kakeya_worker.torch_backend.exact.numerics import rms_norm, swiglu
from kakeya_worker.torch_backend.exact.packing import pack
from kakeya_worker.torch_backend.exact.quantization import QuantizedMatrix, num_groups
from kakeya_worker.torch_backend.numerics import INT8, KV_TYPES, KvType, RowQueries
from kakeya_worker.torch_backend.rope import Rope
from kakeya_worker.torch_backend.weights import BlockMatrix, Scales


class Comparison(NamedTuple):
    """One operation on some values, both ways."""

    operation: str
    kernel: Tensor
    eager: Tensor

    @property
    def is_equal(self) -> bool:
        """To the bit; zeros are equal whatever their sign, on which nothing depends."""
        return torch.equal(self.kernel, self.eager)


@functools.cache
def check_kernel(kernel: Kernel, *, with_blocks: bool) -> None:
    """Raises ModelRefused where the kernel computes other bits. One that computes these is looked at once a process.

    Args:
        with_blocks: whether products with GGUF's blocks are needed, which take half as long again to compare.
    """
    compared = comparisons(kernel, with_blocks=with_blocks)
    if wrong := {comparison.operation for comparison in compared if not comparison.is_equal}:
        raise ModelRefused(
            f"kernel {kernel.name} does not compute the bits of docs/numerics.md in: {', '.join(sorted(wrong))}; "
            f"run with --kernel off, or {build.CURE}"
        )


def comparisons(kernel: Kernel, *, with_blocks: bool) -> Iterator[Comparison]:
    """Every operation, on values that are hard and on random ones."""
    operations = Operations(kernel)
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    yield from _linear(operations, generator)
    if with_blocks:
        yield from _blocks(operations, generator)
    for size in (8, 72, 1024):
        x, weight = random(3, size) * 10.0, random(size)
        yield Comparison("norm", operations.norm(x, weight, 1e-6), rms_norm(x, weight, 1e-6))
    x = torch.cat([-torch.linspace(0, 90, 4096), torch.tensor([-86.0, -1e30, -torch.inf, -0.0])])
    yield Comparison("exp", operations.exp(x), exp(x))
    gate_up = torch.cat([random(3, 80), torch.tensor([[0.0, -100.0, 100.0, 1e30] * 20])]) * 4.0
    yield Comparison("swiglu", operations.swiglu(gate_up), swiglu(*gate_up.chunk(2, dim=-1)))
    yield from _angles(operations)
    yield from _draws(operations)
    for kv_type in KV_TYPES.values():
        for head_dim in (8, 24, 40, 64, 80, 128, 256):
            yield from _heads(operations, head_dim, kv_type, random)
            for num_heads in (2, 4, 14):  # tiles of one query, two and four
                yield _attention(operations, num_heads, head_dim, kv_type, random)


def _draws(operations: Operations) -> Iterator[Comparison]:
    """Of scores that are alike, so that the Gumbel numbers decide, and of more ids than vectors take at a time."""
    scores = torch.linspace(0, 3, 3000, dtype=torch.float64).numpy()
    drawn = KernelDraw(operations.kernel)
    for seed in (0, 2**64 - 1):
        for token_ids in (None, np.flatnonzero(scores < 2.0)):
            both = [each(Survivors(scores, token_ids), seed, 2**33 + 5) for each in (drawn, draw)]
            yield Comparison("draw", *map(torch.tensor, both))


def _linear(operations: Operations, generator: torch.Generator) -> Iterator[Comparison]:
    """Weights and activations of the extremes, in shapes that fill panels and tiles and that do not."""
    extremes = torch.tensor([-127, 127, 127, 0], dtype=torch.int8)
    for out_features, in_features, num_tokens in ((64, 64, 1), (72, 1030, 2), (200, 36, 7), (128, 3072, 5)):
        values = extremes[torch.randint(4, (out_features, in_features), generator=generator)]
        scales = torch.rand(out_features, num_groups(in_features), generator=generator).to(torch.bfloat16)
        exponents = torch.randint(-3, 4, (in_features,), generator=generator).to(torch.int8)
        matrix = QuantizedMatrix(values, scales, exponents)
        packed = pack(matrix)
        x = torch.randn(num_tokens, in_features, generator=generator)
        x[0] = 127.0 / 2.0**exponents  # every activation the largest there is
        bias = torch.randn(out_features, generator=generator)
        eager = Int8Linear(matrix, bias, integer_product.by_floats)(x)
        yield Comparison("linear", operations.linear(packed, x, bias), eager)
        onto = torch.randn(num_tokens, out_features, generator=generator)
        yield Comparison("linear with a residual", operations.linear(packed, x, bias, onto), onto + eager)
        rows = torch.tensor([0, out_features - 1])
        table = Int8Linear(matrix, None, integer_product.by_floats)
        yield Comparison("embedding", operations.embed(packed, rows), table.rows(rows))


def _blocks(operations: Operations, generator: torch.Generator) -> Iterator[Comparison]:
    """Weights of all types of GGUF's, of the extremes, too, in shapes that fill panels and tiles and that do not."""
    for kind in BLOCK_TYPES.values():
        for out_features, num_blocks, num_tokens in ((64, 1, 1), (72, 3, 2), (200, 2, 7)):
            matrix = _extreme_blocks(kind, out_features, num_blocks, generator)
            x = torch.randn(num_tokens, matrix.shape[1], generator=generator)
            x[0] = 1.0  # every activation the largest there is
            x[-1, 1:] = 32384 / 32639  # or, but for one, of the largest upper and the least lower byte
            x[-1, 0] = -1.0
            packed = pack_blocks(matrix)
            bias = torch.randn(out_features, generator=generator)
            eager = BlockLinear(matrix, bias, integer_product.by_floats)
            yield Comparison(f"linear in {kind.name}", operations.linear(packed, x, bias), eager(x))
            rows = torch.tensor([0, out_features - 1])
            yield Comparison(f"embedding in {kind.name}", operations.embed(packed, rows), eager.rows(rows))


def _extreme_blocks(kind: BlockType, out_features: int, num_blocks: int, generator: torch.Generator) -> BlockMatrix:
    """The first rows have the largest of all numbers, the next ones the least; the others' are random."""

    def numbers(num: int, least: int, most: int, dtype: torch.dtype) -> Tensor:
        found = torch.randint(least, most + 1, (out_features, num), generator=generator, dtype=torch.int16)
        found[:16], found[16:32] = most, least
        return found.to(dtype)

    def halves() -> Tensor:
        return torch.rand(out_features, num_blocks, generator=generator).to(torch.float16)

    weights = numbers(num_blocks * kind.size, 0, (1 << kind.num_bits) - 1, torch.uint8)
    of_runs = minima = None
    if kind.has_run_scales:
        of_runs = numbers(num_blocks * kind.num_runs, *((0, 63) if kind.has_minima else (-128, 127)), torch.int8)
        minima = numbers(num_blocks * kind.num_runs, 0, 63, torch.int8) if kind.has_minima else None
    return BlockMatrix(kind, weights, Scales(halves(), halves() if kind.has_minima else None, of_runs, minima))


def _angles(operations: Operations) -> Iterator[Comparison]:
    """At the first positions and after days of tokens."""
    frequencies = np.geomspace(0.15, 1e-6, 32)
    for position in (0, 1, 127, 40_959, 10**6 + 3, 10**9 + 7):
        eager = Rope(frequencies).at(np.array([position]))
        for kernel, rotation in zip(operations.angle(frequencies, position), (eager.cos, eager.sin), strict=True):
            yield Comparison("angles", kernel, rotation.flatten())


def _heads(
    operations: Operations, head_dim: int, kv_type: KvType, random: Callable[..., Tensor]
) -> Iterator[Comparison]:
    """Four queries and two keys, normed and rotated; keys and values rounded to the KV's type."""
    qkv, weights = random(4 + 2 * 2, head_dim), random(2, head_dim)
    rotations = [Rope(np.geomspace(0.15, 1e-6, head_dim // 2)).at(np.array([position])) for position in (900, 901, 67)]
    angles = [torch.cat([rotation.cos.flatten(), rotation.sin.flatten()]) for rotation in rotations]
    found = operations.heads(qkv, 4, 2, weights[0], weights[1], *angles, eps=1e-6, kv_type=kv_type)
    q, k = (rms_norm(heads, weight, 1e-6) for heads, weight in zip(qkv[:6].split([4, 2]), weights, strict=True))
    key, recent, sink = (rotate(heads[None])[0] for rotate, heads in zip(rotations, (k, q, q), strict=True))
    kv = exact_kv(kv_type)
    for queries, eager in zip(found, (recent, sink), strict=False):
        for kernel_part, eager_part in _same_form(queries, eager, kv_type):
            yield Comparison("heads", kernel_part, eager_part)
    for kernel, eager in zip(found[2:], (kv.stored_keys(key), kv.stored_values(qkv[6:])), strict=True):
        yield Comparison("heads", kernel, eager)


def _same_form(stored: Tensor, queries: Tensor, kv_type: KvType) -> Iterator[tuple[Tensor, Tensor]]:
    """Queries as the kernel keeps them, [heads, padded head_dim], and those that it was given, [heads, head_dim]."""
    head_dim, padded = queries.shape[-1], stored.shape[-1]
    if kv_type is not INT8:
        yield stored[:, :head_dim], queries
        return
    numbers, scales = as_queries(spread(queries))
    quads = stored.view(torch.int16)[:, :padded].unflatten(-1, (-1, 2, 2)).mT.flatten(-3)
    yield quads[:, :head_dim], numbers.to(torch.int16)
    yield stored[:, padded // 2], scales


def _attention(
    operations: Operations, num_heads: int, head_dim: int, kv_type: KvType, random: Callable[..., Tensor]
) -> Comparison:
    """Three queries of some heads over one block of sinks and three of recent keys; some places hold nothing."""
    kv = exact_kv(kv_type)
    keys, values = kv.stored_keys(random(2, 6 * BLOCK, head_dim)), kv.stored_values(random(2, 6 * BLOCK, head_dim))
    queries = RowQueries(random(3, num_heads, head_dim), random(3, num_heads, head_dim))
    places = np.arange(4 * BLOCK)
    is_present = (places >= BLOCK + 5) & (places < 4 * BLOCK - 3) | (places < 4)
    seen = np.stack([is_present & (places % 7 != query) for query in range(3)])
    slots = np.where(is_present, (places * 5 + 1) % (6 * BLOCK), 0)
    blocks = KeyBlocks(slots, is_present, BLOCK, seen)
    stored = RowQueries(*(operations.queries(each, kv_type) for each in (queries.to_sinks, queries.to_recent)))
    mixed = operations.attend(stored, keys, values, blocks, head_dim, kv_type)
    return Comparison("attention", mixed, kv.attend(queries, keys, values, as_view(blocks)))
