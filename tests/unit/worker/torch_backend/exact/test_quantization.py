"""Weights in 8 bits, activations in 16 bits a row, and the disk cache of the former."""

import gc
import os
import shutil
import weakref
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file, save_file
from structlog.testing import capture_logs

from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.torch_backend import TorchVerifier, loading
from kakeya_worker.torch_backend.exact import integer_product, quantization
from kakeya_worker.torch_backend.exact.linear import Int8Linear
from kakeya_worker.torch_backend.exact.matrices import ExactEmbedding
from kakeya_worker.torch_backend.exact.numerics import ExactNumerics
from kakeya_worker.torch_backend.exact.quantization import (
    QuantizedMatrix,
    quantize_activations,
    quantize_matrix,
    quantize_table,
)
from kakeya_worker.torch_backend.exact.weight_cache import WeightCache
from kakeya_worker.torch_backend.numerics import FLOAT32, LinearSpec
from kakeya_worker.torch_backend.weights import Weights


def _restored(matrix: QuantizedMatrix) -> torch.Tensor:
    return matrix.values.double() * _each_scale(matrix) * 2.0 ** matrix.exponents.double()


def _each_scale(matrix: QuantizedMatrix) -> torch.Tensor:
    """Each weight's."""
    return matrix.scales.double().repeat_interleave(64, dim=1)[:, : matrix.values.shape[1]]


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_weights_are_off_by_half_a_step_at_most() -> None:
    weight = _random(400, 96)
    matrix = quantize_matrix([weight])
    assert not matrix.exponents.any(), "no column stands out"
    assert matrix.values.dtype is torch.int8
    assert int(matrix.values.abs().max()) == 127
    assert matrix.scales.shape == (400, 2)
    error = (_restored(matrix) - weight).abs()
    assert bool((error <= _each_scale(matrix) * 0.5001).all())


def test_a_group_is_scaled_by_its_own_largest() -> None:
    weight = _random(8, 130)
    weight[:, 64:128] *= 1000
    matrix = quantize_table(weight)
    for group, columns in enumerate((slice(0, 64), slice(64, 128), slice(128, 130))):
        needed = weight[:, columns].abs().amax(1) / 127
        scales = matrix.scales[:, group].float()
        assert bool((scales >= needed).all()), "rounded up"
        assert bool((scales <= needed * (1 + 2.0**-7)).all()), "to the next number of bfloat16"
    assert int(matrix.values.abs().max()) <= 127
    assert quantize_table(torch.full((1, 1), 127.0)).scales.item() == 1, "a number of bfloat16 is left as it is"


def test_columns_of_a_table_are_left_as_they_are() -> None:
    weight = _random(256, 96)
    weight[:, 5] *= 50
    assert not quantize_table(weight).exponents.any()
    assert int(quantize_matrix([weight]).exponents[5]) == 4


def test_outlier_columns_keep_the_others_precise() -> None:
    weight = _random(256, 96)
    weight[:, 5] *= 50
    weight[:, 17] /= 50
    matrix = quantize_matrix([weight])
    exponents = matrix.exponents.tolist()
    assert (exponents[5], exponents[17]) == (4, -6)  # log2(50) is 5.6, less what the outlier adds to its rows
    assert [e for i, e in enumerate(exponents) if i not in (5, 17)] == [0] * 94
    relative = (_restored(matrix) - weight).norm(dim=0) / weight.norm(dim=0)
    assert float(relative.max()) < 0.02
    x = _random(3, 96, seed=1)
    y = Int8Linear(matrix, None, integer_product.by_floats)(x)
    expected = x.double() @ weight.double().T
    assert float((y - expected).norm() / expected.norm()) < 0.01


def test_parts_and_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = _random(64, 32)
    whole = quantize_matrix([weight])
    monkeypatch.setattr(quantization, "_ROWS_AT_ONCE", 7)
    in_parts = quantize_matrix([weight[:10], weight[10:]])
    for field in ("values", "scales", "exponents"):
        assert torch.equal(getattr(whole, field), getattr(in_parts, field))


def test_zeros_and_tiny_values() -> None:
    weight = torch.zeros(4, 8)
    matrix = quantize_matrix([weight])
    assert not matrix.values.any()
    weight[0, 0] = 2.0**-120
    tiny = quantize_matrix([weight])
    assert not tiny.values.any(), "too small to divide by"
    assert not tiny.scales.any()
    upper, lower, scales = quantize_activations(torch.zeros(2, 8))
    assert not upper.any()
    assert not lower.any()
    assert scales.tolist() == [[0.0], [0.0]]


def test_activations_have_sixteen_bits() -> None:
    x = _random(5, 200) * torch.tensor([1e-6, 1.0, 1e6, 1e20, 3.0])[:, None]
    upper, lower, scales = quantize_activations(x)
    assert upper.dtype is lower.dtype is torch.int8
    assert int(upper.abs().max()) <= 127
    restored = (upper.double() * 256 + lower.double()) * scales.double()
    assert bool(((restored - x.double()).abs() <= scales.double() * 0.502).all())
    assert int((upper.int() * 256 + lower.int()).abs().max()) == quantization.ACTIVATION_LIMIT


def test_what_is_not_a_number_stays_so() -> None:
    matrix = quantize_matrix([_random(8, 16)])
    x = torch.zeros(3, 16)
    x[0, 3], x[1, 3] = torch.nan, torch.inf
    y = Int8Linear(matrix, None, integer_product.by_floats)(x)
    assert not y[:2].isfinite().any()
    assert y[2].tolist() == [0.0] * 8


def test_a_linear_layer_by_its_formula() -> None:
    """The specification, spelled out in integers and single float operations."""
    weight, bias, x = _random(6, 150), _random(6, seed=2), _random(2, 150, seed=3)
    matrix = quantize_matrix([weight])
    y = Int8Linear(matrix, bias, integer_product.by_floats)(x)
    upper, lower, scales = quantize_activations(x * 2.0 ** matrix.exponents.float())
    for token in range(2):
        for channel in range(6):
            products = (upper[token].long() * 256 + lower[token].long()) * matrix.values[channel].long()
            total = torch.tensor(0.0)
            for group, product in enumerate(products.split(64)):
                total = total + product.sum().float() * matrix.scales[channel, group].float()
            assert float(y[token, channel]) == float(total * scales[token, 0] + bias[channel])


def test_one_table_embeds_and_heads() -> None:
    table = _random(20, 16)
    embedding = ExactEmbedding(Int8Linear(quantize_table(table), None, integer_product.by_floats))
    rows = embedding.rows(torch.tensor([3, 3, 19]))
    assert torch.equal(rows[0], rows[1])
    assert float((rows - table[[3, 3, 19]]).abs().max()) < 0.02
    logits = embedding.as_head()(rows)
    assert logits.shape == (3, 20)
    assert logits.argmax(-1).tolist() == [3, 3, 19]


def _load(checkpoint: Path, cache: Path | None) -> TorchVerifier:
    return TorchVerifier(str(checkpoint), weights="int8", kv_dtype="auto", num_threads=1, cache_directory=cache)


def _forbidden(*_: Any) -> Any:
    raise AssertionError("quantized again")


def test_a_second_start_maps_what_the_first_converted(
    random_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _load(random_checkpoint, tmp_path)
    (kept,) = (tmp_path / "int8").iterdir()
    with monkeypatch.context() as patch:
        patch.setattr("kakeya_worker.torch_backend.exact.numerics.quantize_matrix", _forbidden)
        second = _load(random_checkpoint, tmp_path)
        assert second.facts == first.facts
        with pytest.raises(AssertionError, match="quantized again"):
            _load(random_checkpoint, None)
    before = kept.stat().st_mtime_ns
    _load(random_checkpoint, tmp_path)
    assert kept.stat().st_mtime_ns == before, "nothing new, nothing written"
    tensors = load_file(kept)
    assert (
        sum(t.numel() * t.itemsize for t in tensors.values())
        < 0.35 * (random_checkpoint / "model.safetensors").stat().st_size
    )


@pytest.mark.parametrize("damage", ["truncated", "garbage", "types", "one bit"])
def test_damaged_weights_are_converted_again(random_checkpoint: Path, tmp_path: Path, damage: str) -> None:
    _load(random_checkpoint, tmp_path)
    (kept,) = (tmp_path / "int8").iterdir()
    whole = kept.read_bytes()
    if damage == "truncated":
        kept.write_bytes(whole[: len(whole) // 2])
    elif damage == "garbage":
        kept.write_bytes(b"\xff" * 1000)
    elif damage == "one bit":
        kept.write_bytes(whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:])
    else:
        save_file({name: tensor.to(torch.float16) for name, tensor in load_file(kept).items()}, kept)
    _load(random_checkpoint, tmp_path)
    assert kept.read_bytes() == whole


def test_what_a_killed_process_left_is_swept(random_checkpoint: Path, tmp_path: Path) -> None:
    _load(random_checkpoint, tmp_path)
    (kept,) = (tmp_path / "int8").iterdir()
    kept.unlink()
    ours, young = (kept.with_name(f"{kept.name}.{character * 16}.part") for character in "ab")
    foreign = kept.with_name("film.mkv.part")
    for left in (ours, young, foreign):
        left.write_text("")
    for left in (ours, foreign):
        os.utime(left, (0, 0))
    _load(random_checkpoint, tmp_path)
    assert sorted((tmp_path / "int8").iterdir()) == sorted([kept, young, foreign])


def _numerics_of(tensor: torch.Tensor) -> ExactNumerics:
    """Over a checkpoint whose every tensor is this one."""
    weights = cast("Weights", lambda name, shape: tensor)
    return ExactNumerics(weights, FLOAT32, integer_product.by_floats, WeightCache(None, 0))


def test_vectors_are_copies() -> None:
    ours = torch.ones(4)
    numerics = _numerics_of(ours)
    vectors = [numerics.norm_weight("n", 4), numerics.bias(LinearSpec("", (("l", 4),), 8, has_bias=True))]
    ours.zero_()
    for vector in vectors:
        assert vector is not None
        assert vector.tolist() == [1.0] * 4


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_vectors_that_are_not_finite_are_refused(value: float) -> None:
    numerics = _numerics_of(torch.tensor([1.0, value], dtype=torch.bfloat16))
    with pytest.raises(ModelRefused, match=r"n\.weight holds infinities or what is not a number"):
        numerics.norm_weight("n", 2)
    with pytest.raises(ModelRefused, match=r"l\.bias holds infinities or what is not a number"):
        numerics.bias(LinearSpec("", (("l", 2),), 8, has_bias=True))


def test_a_cache_that_cannot_be_written_is_no_error(random_checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert _load(random_checkpoint, tmp_path / "file").facts.exact


def test_the_float_model_is_never_whole_in_memory(
    random_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most one fused layer's float tensors are alive at a time, besides norms."""
    alive: list[weakref.ref[torch.Tensor]] = []
    most = 0
    read = Weights.__call__

    def counted(weights: Weights, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        nonlocal most
        tensor = read(weights, name, shape)
        if tensor.dim() == 2:
            gc.collect()
            alive.append(weakref.ref(tensor))
            most = max(most, sum(reference() is not None for reference in alive))
        return tensor

    monkeypatch.setattr(Weights, "__call__", counted)
    gc.collect()
    gc.freeze()  # what is there already, a million objects of the libraries, need not be gone through each time
    try:
        _load(random_checkpoint, tmp_path)
    finally:
        gc.unfreeze()
    assert len(alive) > 10
    assert most <= 3  # q, k and v


def test_long_loading_says_how_far_it_is(random_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_REPORT_SECONDS", 0.0)
    with capture_logs() as logs:
        _load(random_checkpoint, None)
    progress = [(line["loaded"], line["of"]) for line in logs if line["event"] == "loading layers"]
    assert progress == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_fingerprints(random_checkpoint: Path, tmp_path: Path) -> None:
    def load(weights: str, kv_dtype: str = "auto", num_threads: int = 1) -> str:
        return TorchVerifier(
            str(random_checkpoint),
            weights=weights,
            kv_dtype=kv_dtype,
            num_threads=num_threads,
            cache_directory=tmp_path,
        ).facts.fingerprint

    exact = load("int8")
    assert load("int8", "bfloat16", num_threads=2) == exact, "bits do not depend on the threads"
    floats = load("float32")
    others = {load("int8", "float32"), load("int8", "int8"), floats, load("float32", num_threads=2), load("bfloat16")}
    assert len({exact, *others}) == 6
    assert load("float32") == floats
    torch.set_num_threads(1)


def test_the_digest_is_of_what_the_files_hold(random_checkpoint: Path, tmp_path: Path) -> None:
    first = _load(random_checkpoint, tmp_path).facts.fingerprint
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in ("config.json", "model.safetensors"):
        shutil.copy(random_checkpoint / file, copy)
    assert _load(copy, tmp_path).facts.fingerprint == first, "wherever the files lie"
    content = bytearray((copy / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (copy / "model.safetensors").write_bytes(content)
    assert _load(copy, tmp_path).facts.fingerprint != first
    changed = _load(copy, tmp_path).facts.fingerprint
    status = (copy / "model.safetensors").stat()
    content[-1] ^= 2
    (copy / "model.safetensors").write_bytes(content)
    os.utime(copy / "model.safetensors", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert _load(copy, tmp_path).facts.fingerprint != changed, "as large and, it says, as old"
    for damage in ("[", "[]", '{"a": null}'):
        (tmp_path / "digests.json").write_text(damage)
        assert _load(random_checkpoint, tmp_path).facts.fingerprint == first, "remembered digests may be damaged"
