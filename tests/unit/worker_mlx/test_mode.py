"""Which weights and which KV the MLX backend takes, and what it says of them."""

from pathlib import Path

import pytest

from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.mlx_backend.mode import Mode, choose_mode
from kakeya_worker.mlx_backend.quantization import Quantization, split
from tests.unit.worker_mlx.conftest import load

FOUR_BITS = Quantization({"group_size": 64, "bits": 4, "mode": "affine"})


@pytest.mark.parametrize(
    ("weights", "kv_dtype", "checkpoint_dtype", "expected"),
    [
        ("auto", "auto", "bfloat16", ("bfloat16", "bfloat16")),
        ("auto", "auto", "float32", ("float32", "float32")),
        ("auto", "auto", "float16", ("float32", "float32")),
        ("auto", "bfloat16", "float32", ("bfloat16", "bfloat16")),
        ("float32", "auto", "bfloat16", ("float32", "float32")),
        ("bfloat16", "bfloat16", "float32", ("bfloat16", "bfloat16")),
    ],
)
def test_floats(weights: str, kv_dtype: str, checkpoint_dtype: str, expected: tuple[str, str]) -> None:
    mode = choose_mode(weights, kv_dtype, checkpoint_dtype, None)
    assert (mode.weights, mode.kv_dtype) == expected


@pytest.mark.parametrize(
    ("weights", "kv_dtype", "checkpoint_dtype", "expected"),
    [
        ("auto", "auto", "bfloat16", ("4bit", "bfloat16")),
        ("4bit", "auto", "float16", ("4bit", "float32")),
        ("auto", "float32", "bfloat16", ("4bit", "float32")),
    ],
)
def test_quantized(weights: str, kv_dtype: str, checkpoint_dtype: str, expected: tuple[str, str]) -> None:
    mode = choose_mode(weights, kv_dtype, checkpoint_dtype, FOUR_BITS)
    assert (mode.weights, mode.kv_dtype) == expected


@pytest.mark.parametrize(
    ("weights", "kv_dtype", "quantization", "message"),
    [
        ("int8", "auto", None, "int8 with --backend torch"),
        ("float16", "auto", None, "what can: float32, bfloat16"),
        ("auto", "float16", None, "KV of type 'float16' cannot run"),
        ("float32", "bfloat16", None, "keep their KV in float32"),
        ("4bit", "auto", None, "weights '4bit' cannot run"),
        ("float32", "auto", FOUR_BITS, "quantized to 4bit"),
        ("int8", "auto", FOUR_BITS, "quantized to 4bit"),
    ],
)
def test_what_cannot_run_is_refused(
    weights: str, kv_dtype: str, quantization: Quantization | None, message: str
) -> None:
    with pytest.raises(ModelRefused, match=message):
        choose_mode(weights, kv_dtype, "float32", quantization)


@pytest.mark.parametrize(
    ("settings", "mode"),
    [
        ({"group_size": 64, "bits": 8}, "8bit"),
        ({"group_size": 32, "bits": 4, "mode": "mxfp4"}, "mxfp4"),
    ],
)
@pytest.mark.parametrize("key", ["quantization", "quantization_config"])
def test_the_quantization_is_read_under_both_of_its_names(key: str, settings: dict[str, object], mode: str) -> None:
    found, plain = split({"model_type": "qwen3", key: settings})
    assert found is not None
    assert found.mode == mode
    assert plain == {"model_type": "qwen3"}


@pytest.mark.parametrize(
    "settings", [{"quant_method": "gptq", "bits": 4}, {"quant_method": "awq", "bits": 4, "group_size": "64"}, 4]
)
def test_what_others_quantized_is_refused(settings: object) -> None:
    with pytest.raises(ModelRefused, match="quantized by mlx-lm"):
        split({"quantization_config": settings})


def test_a_fingerprint_is_of_model_weights_kv_and_quantization() -> None:
    modes = [
        Mode("float32", "float32"),
        Mode("bfloat16", "bfloat16"),
        Mode("4bit", "float32", FOUR_BITS),
        Mode("4bit", "bfloat16", FOUR_BITS),
        Mode("4bit", "float32", Quantization({**FOUR_BITS.settings, "group_size": 32})),
    ]
    fingerprints = {mode.fingerprint(digest) for mode in modes for digest in ("one", "another")}
    assert len(fingerprints) == 10


def test_facts(random_checkpoint: Path) -> None:
    facts = load(random_checkpoint, "bfloat16").facts
    assert (facts.backend, facts.weights, facts.kv_dtype, facts.exact) == ("mlx", "bfloat16", "bfloat16", False)
    assert facts.kv_bytes_per_token == 4 * 2 * 32 * 2 * 2
    assert facts.max_positions == 4096
