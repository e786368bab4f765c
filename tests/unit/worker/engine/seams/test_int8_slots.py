"""Slots of int8 in lanes of other types: the backend's own numbers, and floats near what they were."""

import numpy as np
import pytest
import torch

from kakeya_worker.engine.seams import int8_slots
from kakeya_worker.engine.seams.raw_numbers import RawNumbers, kv_of_type
from kakeya_worker.torch_backend.exact.attention.int8_kv import as_slots, spread

NARROW, WIDE, SLOTS = np.dtype(np.uint16), np.dtype(np.uint32), np.dtype(np.uint8)
_each_size = pytest.mark.parametrize("head_dim", [2, 6, 24, 64, 80, 128])


def heads(head_dim: int) -> torch.Tensor:
    """Of many sizes; some of nothing, of nearly nothing, or not finite."""
    x = torch.randn(40, head_dim, generator=torch.Generator().manual_seed(head_dim))
    x *= torch.logspace(-6, 6, 40)[:, None]
    x[3], x[4], x[5, 1], x[6, 0] = 0.0, 1e-38, torch.inf, torch.nan
    return x


@_each_size
def test_slots_are_those_of_the_backend(head_dim: int) -> None:
    x = heads(head_dim)
    values, keys = (int8_slots.from_floats(x.numpy(), are_keys=are_keys) for are_keys in (False, True))
    finite = np.flatnonzero(x.isfinite().all(dim=1))
    assert np.array_equal(values[finite], as_slots(x).numpy()[finite])
    assert np.array_equal(keys[finite], as_slots(spread(x)).numpy()[finite])
    assert values.shape == keys.shape == (40, head_dim + int8_slots.SCALE_BYTES)


@_each_size
@pytest.mark.parametrize("are_keys", [True, False])
def test_floats_are_near_what_they_were(head_dim: int, *, are_keys: bool) -> None:
    """Half a step of the scale, which a transform spreads over a head."""
    x = heads(head_dim).numpy()
    back = int8_slots.to_floats(int8_slots.from_floats(x, are_keys=are_keys), are_keys=are_keys)
    finite = np.isfinite(x).all(axis=1)
    largest = np.abs(int8_slots.spread(x) if are_keys else x)[finite].max(axis=1, keepdims=True)
    assert (np.abs(back - x)[finite] <= np.maximum(largest * (0.502 * 1.0079 / 127), 1e-30)).all()
    assert not back[3].any()
    assert not np.isfinite(back[~finite]).any()


def test_spread_twice_is_the_same_again() -> None:
    x = np.random.default_rng(4).integers(-99, 99, (5, 48)).astype(np.float32)
    assert np.array_equal(int8_slots.spread(int8_slots.spread(x)), 16 * x)


@pytest.mark.parametrize("dtype", [NARROW, WIDE])
@pytest.mark.parametrize("are_keys", [True, False])
def test_a_lane_of_another_type(dtype: np.dtype[np.unsignedinteger], *, are_keys: bool) -> None:
    """By float32, both ways."""
    floats = np.random.default_rng(1).standard_normal((3, 2, 7, 32)).astype(np.float32)
    slots: RawNumbers = int8_slots.from_floats(floats, are_keys=are_keys)
    wide = int8_slots.to_floats(slots, are_keys=are_keys)
    found = kv_of_type(slots, dtype, are_keys=are_keys)
    assert found.dtype == dtype
    assert found.shape == floats.shape
    assert np.array_equal(found, kv_of_type(wide.view(np.uint32), dtype, are_keys=are_keys))
    again = kv_of_type(found, SLOTS, are_keys=are_keys)
    assert np.abs(int8_slots.to_floats(again, are_keys=are_keys) - wide).max() < 0.06


def test_slots_stay_as_they_are() -> None:
    slots: RawNumbers = np.zeros((2, 10), np.uint8)
    assert kv_of_type(slots, SLOTS, are_keys=True) is slots
