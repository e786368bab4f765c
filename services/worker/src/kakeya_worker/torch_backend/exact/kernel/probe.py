"""A look at the kernel before it is relied upon: does it compute what the eager form computes, to the bit?

Compilers differ, and one that fuses or reorders what it must not would be found here, before a session has other bits.
"""

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.torch_backend.exact import attention, integer_product
from kakeya_worker.torch_backend.exact.arithmetic import exp, round_to
from kakeya_worker.torch_backend.exact.kernel import build
from kakeya_worker.torch_backend.exact.kernel.library import Kernel
from kakeya_worker.torch_backend.exact.kernel.operations import Operations
from kakeya_worker.torch_backend.exact.key_blocks import BLOCK, KeyBlocks
from kakeya_worker.torch_backend.exact.linear import Int8Embedding, Int8Linear
from kakeya_worker.torch_backend.exact.numerics import rms_norm, swiglu
from kakeya_worker.torch_backend.exact.packing import pack
from kakeya_worker.torch_backend.exact.quantization import QuantizedMatrix, num_groups
from kakeya_worker.torch_backend.numerics import RowQueries
from kakeya_worker.torch_backend.rope import Rope


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
def check_kernel(kernel: Kernel) -> None:
    """Raises ModelRefused where the kernel computes other bits. One that computes these is looked at once a process."""
    if wrong := {comparison.operation for comparison in comparisons(kernel) if not comparison.is_equal}:
        raise ModelRefused(
            f"kernel {kernel.name} does not compute the bits of docs/numerics.md in: {', '.join(sorted(wrong))}; "
            f"run with --kernel off, or {build.CURE}"
        )


def comparisons(kernel: Kernel) -> Iterator[Comparison]:
    """Every operation, on values that are hard and on random ones."""
    operations = Operations(kernel)
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    yield from _linear(operations, generator)
    for size in (8, 72, 1024):
        x, weight = random(3, size) * 10.0, random(size)
        yield Comparison("norm", operations.norm(x, weight, 1e-6), rms_norm(x, weight, 1e-6))
    x = torch.cat([-torch.linspace(0, 90, 4096), torch.tensor([-86.0, -1e30, -torch.inf, -0.0])])
    yield Comparison("exp", operations.exp(x), exp(x))
    gate_up = torch.cat([random(3, 80), torch.tensor([[0.0, -100.0, 100.0, 1e30] * 20])]) * 4.0
    yield Comparison("swiglu", operations.swiglu(gate_up), swiglu(*gate_up.chunk(2, dim=-1)))
    yield from _angles(operations)
    for dtype in (torch.bfloat16, torch.float32):
        for head_dim in (8, 24, 40, 64, 80, 128, 256):
            yield from _heads(operations, head_dim, dtype, random)
            for num_heads in (2, 4, 14):  # tiles of one query, two and four
                yield _attention(operations, num_heads, head_dim, dtype, random)


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
        table = Int8Embedding(matrix, integer_product.by_floats)
        yield Comparison("embedding", operations.embed(packed, rows), table.rows(rows))


def _angles(operations: Operations) -> Iterator[Comparison]:
    """At the first positions and after days of tokens."""
    frequencies = np.geomspace(0.15, 1e-6, 32)
    for position in (0, 1, 127, 40_959, 10**6 + 3, 10**9 + 7):
        eager = Rope(frequencies).at(np.array([position]))
        for kernel, rotation in zip(operations.angle(frequencies, position), (eager.cos, eager.sin), strict=True):
            yield Comparison("angles", kernel, rotation.flatten())


def _heads(
    operations: Operations, head_dim: int, dtype: torch.dtype, random: Callable[..., Tensor]
) -> Iterator[Comparison]:
    """Four queries and two keys, normed and rotated; keys and values rounded to the KV's type."""
    qkv, weights = random(4 + 2 * 2, head_dim), random(2, head_dim)
    rotations = [Rope(np.geomspace(0.15, 1e-6, head_dim // 2)).at(np.array([position])) for position in (900, 901, 67)]
    angles = [torch.cat([rotation.cos.flatten(), rotation.sin.flatten()]) for rotation in rotations]
    found = operations.heads(qkv, 4, 2, weights[0], weights[1], *angles, eps=1e-6, kv_dtype=dtype)
    q, k = (rms_norm(heads, weight, 1e-6) for heads, weight in zip(qkv[:6].split([4, 2]), weights, strict=True))
    key, recent, sink = (rotate(heads[None])[0] for rotate, heads in zip(rotations, (k, q, q), strict=True))
    for kernel, eager in zip(found, (recent, sink, round_to(key, dtype), round_to(qkv[6:], dtype)), strict=True):
        yield Comparison("heads", kernel, eager)


def _attention(
    operations: Operations, num_heads: int, head_dim: int, dtype: torch.dtype, random: Callable[..., Tensor]
) -> Comparison:
    """Three queries of some heads over one block of sinks and three of recent keys; some places hold nothing."""
    keys, values = (random(2, 6 * BLOCK, head_dim).to(dtype) for _ in range(2))
    queries = RowQueries(random(3, num_heads, head_dim), random(3, num_heads, head_dim))
    places = np.arange(4 * BLOCK)
    is_present = (places >= BLOCK + 5) & (places < 4 * BLOCK - 3) | (places < 4)
    seen = np.stack([is_present & (places % 7 != query) for query in range(3)])
    slots = np.where(is_present, (places * 5 + 1) % (6 * BLOCK), 0)
    blocks = KeyBlocks(slots, is_present, BLOCK, seen)
    scale = np.float32(head_dim**-0.5).item()
    mixed = operations.attend(queries, keys, values, blocks, scale)
    return Comparison("attention", mixed, attention.attend(queries, keys, values, attention.as_view(blocks)))
