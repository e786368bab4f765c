"""The exact mode's elementary functions: right, and made of the operations that docs/numerics.md names."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch

from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.torch_backend.exact import integer_product
from kakeya_worker.torch_backend.exact.arithmetic import divide, exp, fold, power_of_two, round_to, sqrt
from kakeya_worker.torch_backend.exact.numerics import rms_norm
from kakeya_worker.torch_backend.exact.probe import problem_with_floats
from kakeya_worker.torch_backend.mode import choose_mode


def test_exp_is_within_two_ulp_and_zero_far_down() -> None:
    x = -torch.linspace(0, 86, 20_001)
    expected = torch.tensor([math.exp(value) for value in x.double().tolist()], dtype=torch.float64)
    ulp = torch.from_numpy(np.spacing(expected.float().numpy())).double()
    assert float(((exp(x).double() - expected).abs() / ulp).max()) <= 2
    assert exp(torch.tensor([0.0, -86.1, -1e30, -torch.inf])).tolist() == [1.0, 0.0, 0.0, 0.0]
    assert exp(torch.tensor([torch.nan])).isnan().all()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 80])
def test_fold_adds_the_upper_half_to_the_lower(size: int) -> None:
    values = torch.randn(size, 5, generator=torch.Generator().manual_seed(size))

    def folded(column: list[np.float32]) -> np.float32:
        if len(column) == 1:
            return column[0]
        half = len(column) // 2
        return folded([column[i] + column[i + half] for i in range(half)])

    num_padded = 1 << (size - 1).bit_length()
    expected = [
        folded([*column, *[np.float32(0)] * (num_padded - size)]) for column in values.numpy().T.astype(np.float32)
    ]
    assert fold(values, dim=0).tolist() == [float(value) for value in expected]
    assert torch.equal(fold(values.T, dim=-1), fold(values, dim=0))


def test_roots_are_correctly_rounded() -> None:
    """Near the middle of two floats a root in too few digits goes the wrong way."""
    generator = np.random.default_rng(0)
    x = generator.uniform(1, 4, 20_000).astype(np.float32)
    roots = sqrt(torch.from_numpy(x)).numpy()
    with localcontext() as context:
        context.prec = 60
        for value, root in zip(x[:2000], roots[:2000], strict=True):
            true = Decimal(float(value)).sqrt()
            neighbours = [root, np.nextafter(root, np.float32(0)), np.nextafter(root, np.float32(9))]
            assert min(neighbours, key=lambda near: abs(Decimal(float(near)) - true)) == root
    assert np.array_equal(roots, np.sqrt(x))


def test_divisions_are_true_divisions() -> None:
    x = torch.arange(1, 5000, dtype=torch.float32)
    assert np.array_equal(divide(127.0, x).numpy(), np.float32(127) / x.numpy())


def test_powers_of_two() -> None:
    exponents = torch.arange(-126, 128)
    assert power_of_two(exponents).tolist() == [2.0**n for n in range(-126, 128)]
    assert torch.equal(power_of_two(exponents.float()), power_of_two(exponents))


def test_rounding_to_bfloat16_is_to_the_nearest_even() -> None:
    bits = torch.randint(-(2**31), 2**31, (100_000,), generator=torch.Generator().manual_seed(0)).to(torch.int32)
    x = bits.view(torch.float32)
    x = x[x.isfinite()]
    assert torch.equal(round_to(x, torch.bfloat16), x.to(torch.bfloat16))
    subnormal = torch.tensor([2.0**-130, -(2.0**-130)])
    assert round_to(subnormal, torch.bfloat16).tolist() == subnormal.tolist()
    assert round_to(x, torch.float32) is x
    assert round_to(torch.tensor([torch.nan, torch.inf]), torch.bfloat16).isfinite().sum() == 0


def test_norm_is_a_norm() -> None:
    x = torch.randn(6, 72, generator=torch.Generator().manual_seed(1))
    weight = torch.linspace(0.5, 1.5, 72)
    expected = x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight
    assert float((rms_norm(x, weight, 1e-6) - expected).abs().max()) < 2e-6
    assert torch.equal(rms_norm(x, weight, 1e-6)[3:4], rms_norm(x[3:4], weight, 1e-6))


@pytest.mark.parametrize("shape", [(1, 64, 8), (3, 64, 40), (130, 64, 33)])
def test_both_integer_products_are_exact(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    generator = torch.Generator().manual_seed(k)
    a = torch.randint(-128, 128, (m, k), generator=generator).to(torch.int8)
    b = torch.randint(-127, 128, (n, k), generator=generator).to(torch.int8)
    expected = (a.long() @ b.long().T).to(torch.int32)
    assert torch.equal(integer_product.by_floats(a, b), expected)
    if integer_product.is_exact(integer_product.native):
        assert torch.equal(integer_product.native(a, b), expected)


def test_the_probe_of_integer_products_knows_a_wrong_one() -> None:
    assert integer_product.is_exact(integer_product.by_floats)

    def saturating(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Adds pairs in 16 bits, as AVX2 does with unsigned by signed bytes."""
        shifted, weights = a.int() + 128, b.int()
        if a.shape[1] % 2:
            raise ValueError("pairs")
        pairs = (shifted[:, None] * weights).unflatten(-1, (-1, 2)).sum(-1).clamp(-(2**15), 2**15 - 1)
        return (pairs.sum(-1) - 128 * weights.sum(-1)).to(torch.int32)

    assert not integer_product.is_exact(saturating)

    def wrong_for_one_row(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return integer_product.by_floats(a, b) + (a.shape[0] == 1)

    assert not integer_product.is_exact(wrong_for_one_row)


def test_floats_that_are_not_ieee_are_refused() -> None:
    assert problem_with_floats() is None
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush subnormals")
    try:
        assert problem_with_floats() == "this process flushes subnormal numbers to zero"
        with pytest.raises(ModelRefused, match="exact mode cannot run: this process flushes"):
            choose_mode("int8", "auto", "float32")
        assert choose_mode("auto", "auto", "bfloat16").weights == "bfloat16"
    finally:
        torch.set_flush_denormal(False)
