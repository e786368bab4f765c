"""The exact product of int8 matrices, and the proof that this machine's is."""

import itertools
from typing import Protocol

import torch
from torch import Tensor

from kakeya_worker.torch_backend.exact.quantization import GROUP


class IntegerProduct(Protocol):
    """Multiplies a [m, 64] with the transpose of b [n, 64], both int8 -> [m, n] int32; exact."""

    def __call__(self, a: Tensor, b: Tensor) -> Tensor: ...


def native(a: Tensor, b: Tensor) -> Tensor:
    """torch._int_mm; saturates silently where oneDNN is kept from VNNI instructions, hence `is_exact`."""
    product: Tensor = torch._int_mm(a, b.t())
    return product


def by_floats(a: Tensor, b: Tensor) -> Tensor:
    """A float32 product: exact everywhere, and several times slower than VNNI.

    64 x 127 x 128 < 2^24: every partial sum is an integer that float32 holds.
    """
    return (a.float() @ b.float().t()).to(torch.int32)


def native_is_fast() -> bool:
    """Whether torch has instructions for int8 products. Without those it loops, several times slower than on floats."""
    return bool(torch.cpu._is_vnni_supported())


def is_exact(product: IntegerProduct) -> bool:
    """Whether a product is right on worst-case values: all signs of the extremes, in shapes of many kernels."""
    return all(_is_exact_for(product, m, GROUP, n) for m, n in itertools.product((1, 2, 5, 64), (8, 33, 256)))


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
