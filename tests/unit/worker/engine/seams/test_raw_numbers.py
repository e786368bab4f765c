"""Floats by their bits in another type: as torch converts them."""

import numpy as np
import torch

from kakeya_worker.engine.seams.raw_numbers import RawNumbers, of_type

NARROW, WIDE = np.dtype(np.uint16), np.dtype(np.uint32)


def of_torch(tensor: torch.Tensor) -> RawNumbers:
    return tensor.view(torch.uint16 if tensor.dtype is torch.bfloat16 else torch.uint32).numpy()


def test_every_number_of_bfloat16_becomes_the_same_of_float32() -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    as_floats = torch.from_numpy(every).view(torch.bfloat16).float()
    assert np.array_equal(of_type(every, WIDE), of_torch(as_floats))
    assert of_type(every, WIDE).dtype == WIDE


def test_float32_is_rounded_as_torch_rounds() -> None:
    draw = np.random.default_rng(5)
    anything = draw.integers(0, 1 << 32, 200_000, dtype=np.uint32)
    between = draw.integers(0, 1 << 16, 2_000, dtype=np.uint32) << 16 | 0x8000  # exactly: ties go to even
    numbers = np.concatenate(
        [anything, between, between - 1, between + 1, np.array([0x7F7FFFFF, 0x80000000], np.uint32)]
    )
    floats = torch.from_numpy(numbers).view(torch.float32)
    narrowed = of_type(numbers, NARROW)
    assert narrowed.dtype == NARROW
    is_number = ~floats.isnan().numpy()
    assert is_number.sum() > 200_000
    assert np.array_equal(narrowed[is_number], of_torch(floats.bfloat16())[is_number])
    assert np.isnan(of_type(narrowed, WIDE).view(np.float32)[~is_number]).all()


def test_what_has_the_type_already_is_not_copied() -> None:
    for dtype in (NARROW, WIDE):
        numbers: RawNumbers = np.zeros(3, dtype)
        assert of_type(numbers, dtype) is numbers
