"""Quantized matrices in the kernel's order."""

from unittest.mock import patch

import torch
from hypothesis import given
from hypothesis import strategies as st

from kakeya_worker.torch_backend.exact import packing
from kakeya_worker.torch_backend.exact.packing import PackedMatrix, pack, unpack
from kakeya_worker.torch_backend.exact.quantization import QuantizedMatrix


def _random(out_features: int, in_features: int, seed: int = 0) -> QuantizedMatrix:
    generator = torch.Generator().manual_seed(seed)
    return QuantizedMatrix(
        torch.randint(-127, 128, (out_features, in_features), generator=generator, dtype=torch.int8),
        torch.rand(out_features, -(-in_features // 64), generator=generator).to(torch.bfloat16),
        torch.randint(-30, 31, (in_features,), generator=generator, dtype=torch.int8),
    )


@given(st.integers(1, 300), st.integers(1, 70), st.integers(1, 3), st.integers(0, 9))
def test_unpacking_gives_back_what_was_packed(out_features: int, in_features: int, at_once: int, seed: int) -> None:
    matrix = _random(out_features, in_features, seed)
    with patch.object(packing, "_PANELS_AT_ONCE", at_once):
        packed = pack(matrix)
        before = packed.values.clone()
        restored = unpack(packed)
    assert torch.equal(packed.values, before)
    assert (packed.out_features, packed.in_features) == (out_features, in_features)
    for field in ("values", "scales", "exponents"):
        assert torch.equal(getattr(restored, field), getattr(matrix, field))
        assert getattr(restored, field).dtype is getattr(matrix, field).dtype


@given(st.integers(1, 200), st.integers(1, 140))
def test_each_weight_lies_at_its_place(out_features: int, in_features: int) -> None:
    matrix = _random(out_features, in_features)
    packed = pack(matrix)
    panels, quads, groups = -(-out_features // 64), -(-in_features // 4), -(-in_features // 64)
    assert packed.values.shape == (panels, quads, 64, 4)
    assert packed.values.dtype is torch.uint8
    assert packed.values.is_contiguous()
    assert packed.scales.shape == (panels, groups, 64)
    assert packed.scales.is_contiguous()
    for row in {0, out_features // 2, out_features - 1}:
        for group in range(groups):
            assert packed.scales[row // 64, group, row % 64] == matrix.scales[row, group]
        for column in range(in_features):
            place = packed.values[row // 64, column // 4, row % 64, column % 4]
            assert int(place) - 128 == int(matrix.values[row, column])


@given(st.integers(1, 130), st.integers(1, 9))
def test_what_lies_outside_weighs_nothing(out_features: int, in_features: int) -> None:
    packed = pack(_random(out_features, in_features))
    whole = unpack(_as_multiples(packed))
    assert not whole.values[out_features:].any()
    assert not whole.values[:, in_features:].any()
    assert not whole.scales[out_features:].any()


def _as_multiples(packed: PackedMatrix) -> PackedMatrix:
    """The same with the padding counted in."""
    num_panels, num_quads, _, _ = packed.values.shape
    return PackedMatrix(packed.values, packed.scales, torch.zeros(4 * num_quads, dtype=torch.int8), 64 * num_panels)


def test_a_packed_matrix_is_a_copy() -> None:
    matrix = _random(64, 4)
    packed = pack(matrix)
    before = packed.values.clone()
    matrix.values.zero_()
    assert torch.equal(packed.values, before)
    restored = unpack(packed)
    restored.scales.zero_()
    assert bool(packed.scales.all())
