"""The exact product of int8 matrices, and the proof that this machine's is."""

import itertools
from typing import Protocol

import torch
from torch import Tensor

_BLOCK = 1024  # 1024 x 127 x 128 < 2^24: every partial sum is an integer that float32 holds
MIN_DEPTH = 2  # products of a single column come out wrong in torch 2.13
MAX_DEPTH = 131_000  # sums still fit int32, and so do the corrections of the kernel's unsigned weights, 128 x 128 each


class IntegerProduct(Protocol):
    """Multiplies a [m, k] with the transpose of b [n, k], both int8 -> [m, n] int32; exact for k within the depths."""

    def __call__(self, a: Tensor, b: Tensor) -> Tensor: ...


def native(a: Tensor, b: Tensor) -> Tensor:
    """torch._int_mm; saturates silently where oneDNN is kept from VNNI instructions, hence `is_exact`."""
    product: Tensor = torch._int_mm(a, b.t())
    return product


def by_float_blocks(a: Tensor, b: Tensor) -> Tensor:
    """float32 products of short blocks: exact everywhere, and several times slower than VNNI."""
    total = torch.zeros(a.shape[0], b.shape[0], dtype=torch.int32)
    for start in range(0, a.shape[1], _BLOCK):
        block = slice(start, start + _BLOCK)
        total += (a[:, block].float() @ b[:, block].float().t()).to(torch.int32)
    return total


def native_is_fast() -> bool:
    """Whether torch has instructions for int8 products. Without those it loops, several times slower than on floats."""
    return bool(torch.cpu._is_vnni_supported())


def is_exact(product: IntegerProduct) -> bool:
    """Whether a product is right on worst-case values: all signs of the extremes, in shapes of many kernels."""
    return all(
        _is_exact_for(product, *shape)
        for shape in itertools.product((1, 2, 5, 64), (MIN_DEPTH, 8, 72, 1024), (8, 33, 256))
    )


def _is_exact_for(product: IntegerProduct, m: int, k: int, n: int) -> bool:
    generator = torch.Generator().manual_seed(m * k * n)
    extremes = torch.tensor([-128, -127, 127, 127], dtype=torch.int8)
    for a_value, b_value in itertools.product((-128, 127), (-127, 127)):
        constant = product(torch.full((m, k), a_value).to(torch.int8), torch.full((n, k), b_value).to(torch.int8))
        if not bool((constant == a_value * b_value * k).all()):
            return False
    a = extremes[torch.randint(4, (m, k), generator=generator)]
    b = extremes[torch.randint(1, 4, (n, k), generator=generator)]
    return torch.equal(product(a, b), (a.double() @ b.double().t()).to(torch.int32))
