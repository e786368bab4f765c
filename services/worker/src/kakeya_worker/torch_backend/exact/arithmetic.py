"""Elementary functions on float32 tensors in fixed trees of IEEE operations."""

import torch
from torch import Tensor

# Cephes expf (Moshier 1992): ln 2 in two parts, the first with few bits, and a polynomial on [-ln 2 / 2, ln 2 / 2].
_LOG2_E = 1.44269504088896341
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_EXP_LEAST = -86.0  # e^-86 is still a normal number, so that flushing subnormals changes nothing


def fold(x: Tensor, dim: int) -> Tensor:
    """The sum along a dimension by halves: pads with zeros to a power of two, then adds the upper half to the lower.

    [..., n, ...] -> [..., ...].
    """
    x = x.movedim(dim, 0)
    num = 1 << (x.shape[0] - 1).bit_length()
    if num != x.shape[0]:
        x = torch.cat([x, x.new_zeros(num - x.shape[0], *x.shape[1:])])
    if num > 1:
        num //= 2
        x = x[:num] + x[num:]
    while num > 1:  # from here on in place: x is ours
        num //= 2
        x[:num] += x[num : 2 * num]
    return x[0]


def exp(x: Tensor) -> Tensor:
    """Exponential of x <= 0, within 2 ulp; 0 below -86."""
    is_zero = x < _EXP_LEAST
    x = x.clamp_min(_EXP_LEAST)
    n = (x * _LOG2_E + 0.5).floor()
    x = x - n * _LN2_HIGH
    x = x - n * _LN2_LOW
    y = torch.full_like(x, _EXP[0])
    for coefficient in _EXP[1:]:
        y = y * x + coefficient
    y = y * (x * x) + x
    y = y + 1.0
    return (y * power_of_two(n)).masked_fill(is_zero, 0.0)


def power_of_two(exponents: Tensor) -> Tensor:
    """2^n, made of bits; whole n within -126..127 in any type."""
    return ((exponents.to(torch.int32) + 127) << 23).view(torch.float32)


def divide(numerator: float, denominator: Tensor) -> Tensor:
    """A constant by a tensor, truly divided: `1 / t` in torch multiplies with a reciprocal."""
    return torch.div(torch.full_like(denominator, numerator), denominator)


def sqrt(x: Tensor) -> Tensor:
    """Correctly rounded: no float32 has a root close enough to the middle of two floats to fool float64."""
    return x.double().sqrt().float()


def round_to(x: Tensor, dtype: torch.dtype) -> Tensor:
    """To the nearest, ties to even; bfloat16 by its bits, since some instructions flush subnormals."""
    if dtype is not torch.bfloat16:
        return x.to(dtype)
    bits = x.view(torch.int32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return (rounded >> 16).to(torch.int16).view(torch.bfloat16)
