"""What cannot run is refused at load, in words that name what is wrong."""

import re
from pathlib import Path
from typing import Any

import pytest

from kakeya_worker.conformance.tools.checkpoint_files import Tensors, write_config, write_tensors
from kakeya_worker.conformance.tools.subject import Subject, cases
from kakeya_worker.engine.seams.verifier import ModelRefused

_SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
_GARBLED: dict[str, dict[str, Any]] = {
    "mamba": {"model_type": "mamba"},
    "hidden_size": {"hidden_size": "64"},
    "vocab_size": {"vocab_size": -1},
    "num_hidden_layers": {"num_hidden_layers": 0},
    "intermediate_size": {"intermediate_size": 1.5},
    "max_position_embeddings": {"max_position_embeddings": True},
    "rms_norm_eps": {"rms_norm_eps": "small"},
    "tie_word_embeddings": {"tie_word_embeddings": "yes"},
    "head_dim": {"head_dim": 31},
    "heads": {"num_attention_heads": 8, "num_key_value_heads": 3},
    "gelu": {"hidden_act": "gelu"},
    "quantized": {"quantization_config": {"quant_method": "gptq", "bits": 4}},
}
_ROPES: dict[str, dict[str, Any]] = {
    "dynamic": {"factor": 2.0},
    "longrope": {"short_factor": [1.0] * 16, "long_factor": [2.0] * 16, "original_max_position_embeddings": 128},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 128},
    "spiral": {"factor": 2.0},  # what nobody knows
    "linear": {},  # without its factor
    "llama3": {"factor": 8.0, "original_max_position_embeddings": 128},  # without its bands
}


@pytest.fixture
def victim(plugin: str, tmp_path: Path) -> Subject:
    """A sound checkpoint of the first model that the plugin covers, in its first mode."""
    case = cases(plugin)[0]
    return Subject(case, case.variant.write(tmp_path / "victim", case.dtype))


def test_unharmed_the_victim_loads(victim: Subject) -> None:
    assert victim.load().facts.vocab_size == victim.variant.config["vocab_size"]


def test_a_config_that_names_no_family(victim: Subject) -> None:
    _leave_out(victim, "model_type")
    _assert_refused(victim, "model_type")


@pytest.mark.parametrize("name", _SIZES)
def test_a_size_that_is_left_out_is_the_family_s_own(victim: Subject, name: str) -> None:
    """As in transformers; it is that of a large model, and these weights have another."""
    _leave_out(victim, name)
    _assert_refused(victim, r"model\.")


def test_positions_that_are_left_out_are_the_family_s_own(victim: Subject) -> None:
    _leave_out(victim, "max_position_embeddings")
    assert victim.load().facts.max_positions > victim.variant.config["max_position_embeddings"]


@pytest.mark.parametrize("named", _GARBLED)
def test_a_garbled_config(victim: Subject, named: str) -> None:
    write_config(victim.directory, {**victim.variant.config, **_GARBLED[named]})
    _assert_refused(victim, named)


@pytest.mark.parametrize("spelling", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("kind", _ROPES)
def test_rope_that_cannot_be_kept(victim: Subject, kind: str, spelling: str) -> None:
    """Scalings that change with the length, that the reference does not know, or that are half given."""
    plain = {key: value for key, value in victim.variant.config.items() if not key.startswith("rope_")}
    write_config(victim.directory, {**plain, spelling: {"rope_type": kind, "rope_theta": 10_000.0, **_ROPES[kind]}})
    _assert_refused(victim, kind)


@pytest.mark.parametrize("text", ["", "{", "[]"], ids=["empty", "cut off", "no object"])
def test_a_config_that_is_none(victim: Subject, text: str) -> None:
    (victim.directory / "config.json").write_text(text)
    _assert_refused(victim, "config.json")


def test_no_config(victim: Subject) -> None:
    (victim.directory / "config.json").unlink()
    _assert_refused(victim, "config.json")


def test_no_directory(victim: Subject) -> None:
    with pytest.raises(ModelRefused, match="nowhere"):
        victim.load(victim.directory / "nowhere")


def test_no_weights(victim: Subject) -> None:
    (victim.directory / "model.safetensors").unlink()
    _assert_refused(victim, "model.safetensors")


@pytest.mark.parametrize("num_bytes", [0, 4, 100, 50_000])
def test_weights_that_are_cut_off(victim: Subject, num_bytes: int) -> None:
    path = victim.directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:num_bytes])
    _assert_refused(victim, "model.safetensors")


def test_each_tensor_is_demanded(float32: Subject, tmp_path: Path) -> None:
    tensors = float32.variant.tensors()
    last_layer = f"model.layers.{float32.variant.config['num_hidden_layers'] - 1}."
    names = [name for name in tensors if name.startswith(last_layer) or "layers" not in name]
    for number, name in enumerate(names):
        damaged = _damaged(float32, tmp_path / str(number), {key: t for key, t in tensors.items() if key != name})
        _assert_refused(damaged, re.escape(name))


@pytest.mark.parametrize("name", ["model.layers.1.mlp.down_proj.weight", "model.norm.weight"])
def test_a_tensor_is_demanded_in_every_mode(subject: Subject, tmp_path: Path, name: str) -> None:
    tensors = subject.variant.tensors(subject.case.dtype)
    del tensors[name]
    _assert_refused(_damaged(subject, tmp_path / "damaged", tensors), re.escape(name))


def test_each_tensor_has_its_shape(float32: Subject, tmp_path: Path) -> None:
    tensors = float32.variant.tensors()
    names = [name for name in tensors if ".layers.0." in name or "layers" not in name]
    for number, name in enumerate(names):
        damaged = _damaged(float32, tmp_path / str(number), tensors | {name: tensors[name][:-1]})
        _assert_refused(damaged, re.escape(name))


def _damaged(subject: Subject, directory: Path, tensors: Tensors) -> Subject:
    directory.mkdir()
    write_config(directory, {**subject.variant.config, "torch_dtype": subject.case.dtype})
    write_tensors(directory, tensors, subject.case.dtype)
    return Subject(subject.case, directory)


def _leave_out(victim: Subject, name: str) -> None:
    write_config(victim.directory, {key: value for key, value in victim.variant.config.items() if key != name})


def _assert_refused(subject: Subject, named: str) -> None:
    with pytest.raises(ModelRefused, match=named):
        subject.load()
