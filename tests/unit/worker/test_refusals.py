"""Models that cannot run are refused at load, with the reason and the list of what can."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from kakeya_shared.service_process import StartError
from kakeya_worker.engine.verifier import ModelRefused
from kakeya_worker.program import load_engine
from kakeya_worker.settings import WorkerSettings
from kakeya_worker.torch_backend import TorchVerifier
from kakeya_worker.torch_backend.checkpoint import Weights
from kakeya_worker.torch_backend.qwen3_config import SUPPORTED


def _load(model: Path | str, dtype: str = "auto") -> TorchVerifier:
    return TorchVerifier(str(model), dtype=dtype, num_threads=1)


@pytest.fixture
def changed(demo_checkpoint: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the demo checkpoint with some of its config.json changed."""

    def change(**fields: Any) -> Path:
        shutil.copytree(demo_checkpoint, tmp_path, dirs_exist_ok=True)
        config = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps({**config, **fields}))
        return tmp_path

    return change


@pytest.mark.parametrize(
    "fields",
    [
        {"model_type": "gpt2"},
        {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6}},
        {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
        {"use_sliding_window": True, "sliding_window": 128},
        {"layer_types": ["full_attention", "sliding_attention"]},
        {"hidden_act": "gelu"},
        {"quantization_config": {"bits": 4}},
    ],
)
def test_what_would_break_the_law_is_refused_with_what_can_run(
    changed: Callable[..., Path], fields: dict[str, Any]
) -> None:
    with pytest.raises(ModelRefused, match=re.escape(SUPPORTED)):
        _load(changed(**fields))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_size": None}, "garbles"),
        ({"rope_parameters": [1]}, "garbles"),
        ({"layer_types": 5}, "garbles"),
        ({"num_key_value_heads": 3}, "no possible model"),
        ({"max_position_embeddings": 0}, "no possible model"),
        ({"vocab_size": 1000}, "model.embed_tokens.weight has shape"),
        ({"num_hidden_layers": 5}, "no tensor model.layers.4"),
        ({"tie_word_embeddings": False}, "no tensor lm_head.weight"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(
    changed: Callable[..., Path], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelRefused, match=message):
        _load(changed(**fields))


def test_damaged_files_are_refused(demo_checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelRefused, match=r"no readable config\.json"):
        _load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelRefused, match="is not JSON"):
        _load(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ModelRefused, match="not a JSON object"):
        _load(tmp_path)
    shutil.copy(demo_checkpoint / "config.json", tmp_path)
    with pytest.raises(ModelRefused, match=r"no readable model\.safetensors"):
        _load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes((demo_checkpoint / "model.safetensors").read_bytes()[:5000])
    with pytest.raises(ModelRefused, match=r"no readable model\.safetensors"):
        _load(tmp_path)


def test_sharded_checkpoints_load_and_missing_shards_are_refused(demo_checkpoint: Path, tmp_path: Path) -> None:
    with safe_open(demo_checkpoint / "model.safetensors", framework="pt") as file:
        names = list(file.keys())
    shutil.copy(demo_checkpoint / "config.json", tmp_path)
    shutil.copy(demo_checkpoint / "model.safetensors", tmp_path / "shard.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(names, "shard.safetensors")}))
    assert "model.norm.weight" in Weights(tmp_path, torch.float32)
    assert _load(tmp_path).facts.vocab_size == _load(demo_checkpoint).facts.vocab_size
    for damaged in ("[1]", '{"weight_map": []}', '{"a": 1}', "{"):
        index.write_text(damaged)
        with pytest.raises(ModelRefused, match="no readable"):
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


def test_dtypes(demo_checkpoint: Path) -> None:
    assert _load(demo_checkpoint).facts.dtype == "float32"
    assert _load(demo_checkpoint, "bfloat16").facts.kv_bytes_per_token == 1_024
    with pytest.raises(ModelRefused, match="what can: float32, bfloat16"):
        _load(demo_checkpoint, "int4")


def test_a_refusal_is_one_start_error(demo_checkpoint: Path) -> None:
    with pytest.raises(StartError, match="is not a directory"):
        load_engine(WorkerSettings.parse(["--model", "/no/such/directory"]))
    with pytest.raises(StartError, match="cannot be allocated"):
        load_engine(WorkerSettings.parse(["--model", str(demo_checkpoint), "--lanes", "2000000000"]))
    with pytest.raises(StartError, match=r"no kakeya\.verifier plugin is named 'cuda' \(installed: .*torch"):
        load_engine(WorkerSettings.parse(["--model", str(demo_checkpoint), "--backend", "cuda"]))
