"""Checkpoints that mlx-lm quantized: the law with the weights that they have, and true bytes."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from kakeya_worker.conformance.tools.checkpoint_files import Tensors
from kakeya_worker.conformance.tools.checkpoints import VARIANTS, Variant
from kakeya_worker.conformance.tools.driving import open_session
from kakeya_worker.conformance.tools.measure import deviation
from kakeya_worker.conformance.tools.reference import Reference
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.verifier import ModelRefused
from tests.unit.worker_mlx.conftest import load

GEOMETRY = LaneGeometry(sink=4, window=40, chunk=32)
NUM_TOKENS = 200  # 4.5 x (S + W)
_TIED = VARIANTS[0]
_UNTIED = next(variant for variant in VARIANTS if variant.name == "llama")
PLAIN = (
    Variant("quantizable", {**_TIED.config, "hidden_size": 64, "intermediate_size": 128}),
    Variant("quantizable-untied", {**_UNTIED.config, "hidden_size": 64, "intermediate_size": 128, "head_dim": 16}),
)


@dataclass(frozen=True, eq=False)
class Dequantized(Variant):
    """The model that a quantized checkpoint is."""

    directory: Path

    def tensors(self, dtype: str = "float32") -> Tensors:
        stored = mx.load(str(self.directory / "model.safetensors"))
        assert isinstance(stored, dict)
        settings = json.loads((self.directory / "config.json").read_text())["quantization"]
        tensors = {}
        for name, tensor in stored.items():
            module, _, part = name.rpartition(".")
            if part in ("scales", "biases"):
                continue
            if part == "weight" and f"{module}.scales" in stored:
                given = settings.get(module) or settings
                tensor = mx.dequantize(
                    tensor,
                    stored[f"{module}.scales"],
                    stored.get(f"{module}.biases"),
                    given["group_size"],
                    given["bits"],
                    mode=given.get("mode", "affine"),
                )
            tensors[name] = np.array(tensor.astype(mx.float32))
        return tensors


@pytest.fixture(scope="session", params=PLAIN, ids=lambda variant: variant.name)
def plain(request: pytest.FixtureRequest) -> Variant:
    variant: Variant = request.param
    return variant


@pytest.fixture(scope="session", params=[4, 8], ids=lambda bits: f"{bits}-bits")
def quantized(request: pytest.FixtureRequest, plain: Variant, tmp_path_factory: pytest.TempPathFactory) -> Dequantized:
    directory = tmp_path_factory.mktemp(plain.name)
    return quantize(plain, directory, bits=request.param)


def quantize(plain: Variant, directory: Path, *, bits: int, **options: Any) -> Dequantized:
    """By mlx-lm, in the steps of its `convert`, which would want a tokenizer."""
    from mlx_lm import utils as mlx_lm  # after the backend, which keeps it from lowering the limit of open files

    model, config = mlx_lm.load_model(plain.write(directory / "plain"))
    model, config = mlx_lm.quantize_model(model, config, **{"group_size": 32, "bits": bits, **options})
    mlx_lm.save_model(directory, model)
    mlx_lm.save_config(config, directory / "config.json")
    return Dequantized(plain.name, plain.config, directory)


def worst_deviation(quantized: Dequantized, append_size: int, kv_dtype: str = "float32") -> float:
    """From the law in float64, in tolerances, over the ends of appends of a history past the wrap."""
    verifier = load(quantized.directory, kv_dtype=kv_dtype)
    verifier.allocate(GEOMETRY, 1)
    verifier.poison()
    session = open_session(verifier, GEOMETRY)
    history = quantized.history(NUM_TOKENS)
    expected = Reference(quantized, GEOMETRY.sink, GEOMETRY.window).append(history)
    return max(
        deviation(kv_dtype, session.append(history[start : start + append_size]), expected[session.lane.length - 1])
        for start in range(0, NUM_TOKENS, append_size)
    )


@pytest.mark.parametrize("append_size", [1, 7, NUM_TOKENS])
def test_the_law_holds(quantized: Dequantized, append_size: int) -> None:
    assert worst_deviation(quantized, append_size) <= 1


def test_bytes_and_mode_are_true(quantized: Dequantized) -> None:
    bits = json.loads((quantized.directory / "config.json").read_text())["quantization"]["bits"]
    config = quantized.config
    elements = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * quantized.head_dim
    for kv_dtype, itemsize in (("auto", 4), ("float32", 4), ("bfloat16", 2)):
        verifier = load(quantized.directory, kv_dtype=kv_dtype)
        assert (verifier.facts.weights, verifier.facts.exact) == (f"{bits}bit", False)
        assert verifier.facts.kv_bytes_per_token == elements * itemsize
        verifier.allocate(GEOMETRY, 2)
        assert (
            sum(a.nbytes for lane in verifier.slab.lanes for a in lane.arrays)
            == 2 * GEOMETRY.num_slots * elements * itemsize
        )
        up = verifier.decoder.model.layers[0].mlp.up_proj
        assert up.weight.nbytes == config["intermediate_size"] * config["hidden_size"] * bits // 8


def test_four_sessions_in_one_step_are_each_as_alone(quantized: Dequantized) -> None:
    verifier = load(quantized.directory)
    verifier.allocate(GEOMETRY, 5)
    verifier.poison()
    sessions = [open_session(verifier, GEOMETRY, lane) for lane in range(4)]
    for start in range(0, 100, 4):
        rows = [s.lane.row(quantized.history(100, s.lane.index)[start : start + 4]) for s in sessions]
        verifier.forward(rows)
        for session, row in zip(sessions, rows, strict=True):
            session.lane.commit(row)
    together = verifier.logits(range(4))
    for session, logits in zip(sessions, together, strict=True):
        alone = open_session(verifier, GEOMETRY, 4).append(quantized.history(100, session.lane.index))
        assert deviation("float32", logits, alone.astype(np.float64)) <= 1


def mixed_settings(path: str, _: object) -> bool | dict[str, int]:
    """Some with more bits, some left as they are, as mlx-lm's mixed recipes do."""
    if "down_proj" in path:
        return {"group_size": 32, "bits": 8}
    return "v_proj" not in path


def test_matrices_may_have_settings_of_their_own(tmp_path: Path) -> None:
    mixed = quantize(PLAIN[0], tmp_path, bits=4, quant_predicate=mixed_settings)
    assert load(mixed.directory).facts.weights == "4bit"
    assert worst_deviation(mixed, 20) <= 1


def test_so_may_those_of_the_language_model_of_one_that_sees(tmp_path: Path) -> None:
    plain, wrapped = quantize(PLAIN[1], tmp_path, bits=4, quant_predicate=mixed_settings).directory, tmp_path / "sees"
    wrapped.mkdir()
    stored = mx.load(str(plain / "model.safetensors"))
    assert isinstance(stored, dict)
    mx.save_safetensors(
        str(wrapped / "model.safetensors"),
        {f"language_model.{name}": tensor for name, tensor in stored.items()} | {"vision_tower.x.weight": mx.zeros(3)},
    )
    config = json.loads((plain / "config.json").read_text())
    settings = {f"language_model.{name}" if "." in name else name: s for name, s in config["quantization"].items()}
    assert settings != config["quantization"]
    part = {name: value for name, value in config.items() if not name.startswith("quantization")}
    whole = {"model_type": "llava", "text_config": part, "quantization": settings}
    (wrapped / "config.json").write_text(json.dumps(whole))
    logits = set()
    for directory in (plain, wrapped):
        verifier = load(directory)
        verifier.allocate(GEOMETRY, 1)
        logits.add(open_session(verifier, GEOMETRY).append(range(50)).tobytes())
    assert len(logits) == 1


@pytest.mark.parametrize("mode", ["mxfp4", "mxfp8", "nvfp4"])
def test_formats_of_floats_run_too(tmp_path: Path, mode: str) -> None:
    bits, group_size = (8 if mode == "mxfp8" else 4), (16 if mode == "nvfp4" else 32)
    made = quantize(PLAIN[0], tmp_path, bits=bits, group_size=group_size, mode=mode)
    assert load(made.directory).facts.weights == mode
    assert worst_deviation(made, 20) <= 1


def test_the_fingerprint_tells_quantizations_apart(tmp_path: Path) -> None:
    fingerprints = set()
    for bits in (4, 8):
        (tmp_path / str(bits)).mkdir()
        directory = quantize(PLAIN[0], tmp_path / str(bits), bits=bits).directory
        fingerprints |= {load(directory, kv_dtype=kv_dtype).facts.fingerprint for kv_dtype in ("float32", "bfloat16")}
    assert len(fingerprints) == 4


def test_half_of_a_quantized_matrix_is_refused(tmp_path: Path) -> None:
    directory = quantize(PLAIN[0], tmp_path, bits=4).directory
    stored = mx.load(str(directory / "model.safetensors"))
    assert isinstance(stored, dict)
    del stored["model.layers.1.mlp.up_proj.scales"]
    mx.save_safetensors(str(directory / "model.safetensors"), stored)
    with pytest.raises(ModelRefused, match=r"model\.layers\.1\.mlp\.up_proj"):
        load(directory)
