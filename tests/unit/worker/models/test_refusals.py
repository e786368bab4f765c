"""Models that cannot run are refused at load, with the reason and the list of what can."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from kakeya_shared.process.service_process import StartError
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.loading import load_engine
from kakeya_worker.settings import WorkerSettings
from kakeya_worker.torch_backend import TorchVerifier


def _load(model: Path | str, weights: str = "float32", kv_dtype: str = "auto") -> TorchVerifier:
    return TorchVerifier(str(model), weights=weights, kv_dtype=kv_dtype, num_threads=1, cache_directory=None)


@pytest.fixture
def changed(random_checkpoint: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the random checkpoint with some of its config.json changed."""

    def change(**fields: Any) -> Path:
        shutil.copytree(random_checkpoint, tmp_path, dirs_exist_ok=True)
        config = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps({**config, **fields}))
        return tmp_path

    return change


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "gpt2"}, "what can: llama, mistral, qwen2, qwen3, smollm3"),
        ({"model_type": None}, "what can: llama"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "depends on the length"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "depends on the length"),
        (
            {"rope_parameters": {"rope_type": "default"}, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
            "depends on the length",
        ),
        ({"partial_rotary_factor": 0.5, "rope_parameters": {"rope_type": "default"}}, "a part of each head"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "what can run: default, linear, llama3"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "a part of each head"),
        ({"rope_parameters": {"rope_type": "factors"}}, "what can run: default, linear, llama3"),
        ({"rope_parameters": {"rope_type": "factors", "factors": 2.0}}, "what can run: default, linear, llama3"),
        ({"rope_parameters": {"rope_type": "factors", "factors": [1.0, 0.0]}}, "must be a positive number, not 0.0"),
        ({"rope_parameters": {"rope_type": "factors", "factors": [1.0], "partial_rotary_factor": 0.5}}, "a part of"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "differs between layers"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "type linear_attention"),
        ({"hidden_act": "gelu"}, "what can: silu"),
        ({"quantization_config": {"bits": 4}}, "quantized already"),
    ],
)
def test_what_would_break_the_law_is_refused_with_the_reason(
    changed: Callable[..., Path], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelRefused, match=message):
        _load(changed(**fields))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_size": None}, "hidden_size must be a whole number"),
        ({"hidden_size": "128"}, "hidden_size must be a whole number"),
        ({"rms_norm_eps": -1}, "rms_norm_eps must be a positive number"),
        ({"rope_theta": "big"}, "rope_theta must be a positive number"),
        ({"rope_parameters": [1]}, "rope_parameters must be an object"),
        ({"rope_theta": 10**400}, "rope_theta must be a positive number"),
        ({"rms_norm_eps": float("inf")}, "rms_norm_eps must be a positive number"),
        ({"max_position_embeddings": 10**30}, "max_position_embeddings must be a whole number"),
        ({"rope_parameters": {"rope_type": "linear"}}, "factor must be a positive number"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 1e-320}}, "factor must be a positive number"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8}}, "low_freq_factor must be a positive number"),
        (
            {
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8,
                    "low_freq_factor": 1,
                    "high_freq_factor": float("nan"),
                }
            },
            "high_freq_factor must be a positive number",
        ),
        (
            {"rope_parameters": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}},
            "must exceed",
        ),
        ({"layer_types": 5}, "layer_types must be a list"),
        ({"attention_bias": "yes"}, "attention_bias must be true or false"),
        ({"num_key_value_heads": 3}, "cannot share 3 KV heads evenly"),
        ({"head_dim": 31}, "an even head_dim"),
        ({"max_position_embeddings": 0}, "max_position_embeddings must be a whole number"),
        ({"vocab_size": 1000}, "model.embed_tokens.weight has shape"),
        ({"num_hidden_layers": 5}, "no tensor model.layers.4"),
        ({"tie_word_embeddings": False}, r"do not hold both model\.embed_tokens\.weight and lm_head\.weight"),
        ({"attention_bias": True}, "no tensor model.layers.0.self_attn.q_proj.bias"),
        ({"model_type": "smollm3", "no_rope_layers": [1]}, "no_rope_layers says nothing of layers from 1 on"),
    ],
)
@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_a_config_that_does_not_fit_is_refused(
    changed: Callable[..., Path], fields: dict[str, Any], message: str, weights: str
) -> None:
    with pytest.raises(ModelRefused, match=message):
        _load(changed(**fields), weights)


@pytest.mark.parametrize(
    "fields",
    [
        {"use_sliding_window": True, "sliding_window": 128, "layer_types": ["full_attention", "sliding_attention"]},
        {"use_sliding_window": True, "sliding_window": 128, "layer_types": [], "max_window_layers": 1},
        {"use_sliding_window": True, "sliding_window": 128, "layer_types": [], "max_window_layers": 0},
        {"model_type": "mistral", "sliding_window": 128, "layer_types": None},
    ],
)
def test_a_window_of_the_model_s_own_bounds_sinks_and_window(
    changed: Callable[..., Path], fields: dict[str, Any]
) -> None:
    model = changed(**fields)
    facts = _load(model).facts
    assert (facts.max_positions, facts.max_positions_reason) == (128, "the sliding window of the model's own layers")
    with pytest.raises(StartError, match=r"exceed 128 positions, the sliding window of the model's own layers"):
        load_engine(WorkerSettings.parse(["--model", str(model), "--window", "126"]))


@pytest.mark.parametrize(
    "fields",
    [
        {"use_sliding_window": False, "sliding_window": 128},
        {"use_sliding_window": True, "sliding_window": 128},  # the first 28 layers have none
        {"use_sliding_window": True, "sliding_window": None, "max_window_layers": 0},
        {"use_sliding_window": True, "sliding_window": 128, "layer_types": ["full_attention", "full_attention"]},
        {"use_sliding_window": True, "sliding_window": 128, "layer_types": None, "max_window_layers": 99},
        {"model_type": "mistral", "sliding_window": None, "layer_types": None},
    ],
)
def test_a_window_that_no_layer_uses_bounds_nothing(changed: Callable[..., Path], fields: dict[str, Any]) -> None:
    facts = _load(changed(**fields)).facts
    assert facts.max_positions_reason == "the model's max_position_embeddings"


def test_what_a_family_means_by_leaving_something_out(changed: Callable[..., Path]) -> None:
    model = changed(model_type="mistral", max_position_embeddings=8192, layer_types=None, head_dim=32)
    config = json.loads((model / "config.json").read_text())
    config.pop("sliding_window", None)
    (model / "config.json").write_text(json.dumps(config))
    assert _load(model).facts.max_positions == 4096
    config = {**config, "model_type": "smollm3", "no_rope_layers": None}
    config.pop("tie_word_embeddings")
    (model / "config.json").write_text(json.dumps(config))
    assert _load(model).config.tied_head


def test_weights_that_are_not_numbers_are_refused(random_checkpoint: Path, tmp_path: Path) -> None:
    shutil.copy(random_checkpoint / "config.json", tmp_path)
    tensors = load_file(random_checkpoint / "model.safetensors")
    tensors["model.layers.0.mlp.down_proj.weight"][3, 4] = torch.inf
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelRefused, match=r"model\.layers\.0\.mlp\.down_proj\.weight holds infinities"):
        _load(tmp_path, "int8")


def test_damaged_files_are_refused(random_checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelRefused, match=r"no readable config\.json"):
        _load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelRefused, match="is not JSON"):
        _load(tmp_path)
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(ModelRefused, match="is not JSON"):
        _load(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ModelRefused, match="not a JSON object"):
        _load(tmp_path)
    shutil.copy(random_checkpoint / "config.json", tmp_path)
    with pytest.raises(ModelRefused, match=r"model\.safetensors cannot be read"):
        _load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes((random_checkpoint / "model.safetensors").read_bytes()[:5000])
    with pytest.raises(ModelRefused, match=r"model\.safetensors cannot be read"):
        _load(tmp_path)


def test_sharded_checkpoints_load_and_missing_shards_are_refused(random_checkpoint: Path, tmp_path: Path) -> None:
    with safe_open(random_checkpoint / "model.safetensors", framework="pt") as file:
        names = list(file.keys())
    shutil.copy(random_checkpoint / "config.json", tmp_path)
    shutil.copy(random_checkpoint / "model.safetensors", tmp_path / "shard.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(names, "shard.safetensors")}))
    assert _load(tmp_path).facts.vocab_size == _load(random_checkpoint).facts.vocab_size
    for damaged in ("[1]", '{"weight_map": []}', '{"a": 1}', "{"):
        index.write_text(damaged)
        with pytest.raises(ModelRefused, match=r"index\.json cannot be read"):
            _load(tmp_path)
    index.write_text(json.dumps({"weight_map": dict.fromkeys(names, "shard.safetensors")}))
    save_file({name: torch.zeros(1024, 128, dtype=torch.int8) for name in names}, tmp_path / "shard.safetensors")
    with pytest.raises(ModelRefused, match="quantized weights cannot run"):
        _load(tmp_path)
    (tmp_path / "shard.safetensors").unlink()
    with pytest.raises(ModelRefused, match="cannot be read"):
        _load(tmp_path)


def test_names_that_are_no_model_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelRefused, match="is not a directory"):
        _load("/no/such/directory")
    for name in ("nobody/no-such-model", "not//an id"):
        with pytest.raises(ModelRefused, match="neither a local directory nor a model that the hub hands out"):
            _load(name)


@pytest.mark.parametrize(
    ("weights", "kv_dtype", "chosen", "kv_bytes_per_token"),
    [
        ("float32", "auto", ("float32", "float32", False), 2_048),
        ("bfloat16", "auto", ("bfloat16", "bfloat16", False), 1_024),
        ("bfloat16", "bfloat16", ("bfloat16", "bfloat16", False), 1_024),
        ("int8", "auto", ("int8", "bfloat16", True), 1_024),
        ("int8", "float32", ("int8", "float32", True), 2_048),
        ("int8", "int8", ("int8", "int8", True), 544),
    ],
)
def test_modes(
    random_checkpoint: Path, weights: str, kv_dtype: str, chosen: tuple[str, str, bool], kv_bytes_per_token: int
) -> None:
    facts = _load(random_checkpoint, weights, kv_dtype).facts
    assert (facts.weights, facts.kv_dtype, facts.exact) == chosen
    assert facts.kv_bytes_per_token == kv_bytes_per_token


def test_modes_that_there_are_not(random_checkpoint: Path) -> None:
    with pytest.raises(ModelRefused, match="what can: gguf, int8, float32, bfloat16"):
        _load(random_checkpoint, "int4")
    with pytest.raises(ModelRefused, match="what can: float32, bfloat16, int8"):
        _load(random_checkpoint, "int8", "int4")
    with pytest.raises(ModelRefused, match="weights of float32 keep their KV in float32, not int8"):
        _load(random_checkpoint, "float32", "int8")
    with pytest.raises(ModelRefused, match="weights of float32 keep their KV in float32"):
        _load(random_checkpoint, "float32", "bfloat16")


def test_a_refusal_is_one_start_error(random_checkpoint: Path) -> None:
    with pytest.raises(StartError, match="is not a directory"):
        load_engine(WorkerSettings.parse(["--model", "/no/such/directory"]))
    with pytest.raises(StartError, match="cannot be allocated"):
        load_engine(WorkerSettings.parse(["--model", str(random_checkpoint), "--lanes", "2000000000"]))
    with pytest.raises(StartError, match=r"no kakeya\.verifier plugin is named 'cuda' \(installed: .*torch"):
        load_engine(WorkerSettings.parse(["--model", str(random_checkpoint), "--backend", "cuda"]))
    with pytest.raises(StartError, match=r"no kakeya\.retention plugin is named 'all' \(installed: sink-window"):
        load_engine(WorkerSettings.parse(["--model", str(random_checkpoint), "--retention", "all"]))
