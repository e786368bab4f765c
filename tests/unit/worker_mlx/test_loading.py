"""What the MLX backend loads, what it leaves alone, and what it refuses."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from kakeya_worker.conformance.tools.driving import open_session
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.verifier import ModelRefused
from tests.random_checkpoint import CONFIG
from tests.unit.worker_mlx.conftest import load

GEOMETRY = LaneGeometry(sink=2, window=14, chunk=8)


def changed(checkpoint: Path, directory: Path, tensors: dict[str, mx.array] | None = None, **fields: Any) -> Path:
    """A copy of a checkpoint with other tensors, or more of them, and with some of its config.json changed."""
    (directory / "config.json").write_text(json.dumps({**CONFIG, **fields}))
    stored = mx.load(str(checkpoint / "model.safetensors"))
    assert isinstance(stored, dict)
    mx.save_safetensors(str(directory / "model.safetensors"), stored | (tensors or {}))
    return directory


def logits(model: Path) -> list[float]:
    verifier = load(model)
    verifier.allocate(GEOMETRY, 1)
    return open_session(verifier, GEOMETRY).append(range(20)).tolist()


def test_tensors_that_the_model_has_not_are_left_out(random_checkpoint: Path, tmp_path: Path) -> None:
    """Frequencies that older checkpoints bring."""
    others = {"model.layers.0.self_attn.rotary_emb.inv_freq": mx.zeros((16,))}
    np.testing.assert_array_equal(logits(changed(random_checkpoint, tmp_path, others)), logits(random_checkpoint))


def test_half_precision_runs_in_float32(random_checkpoint: Path, tmp_path: Path) -> None:
    stored = mx.load(str(random_checkpoint / "model.safetensors"))
    assert isinstance(stored, dict)
    halves = {name: tensor.astype(mx.float16) for name, tensor in stored.items()}
    model = changed(random_checkpoint, tmp_path, halves, torch_dtype="float16")
    assert load(model).facts.kv_dtype == "float32"
    np.testing.assert_allclose(logits(model), logits(random_checkpoint), atol=0.05)


def test_integers_are_no_weights(random_checkpoint: Path, tmp_path: Path) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    tensors = {name: mx.zeros((CONFIG["intermediate_size"], CONFIG["hidden_size"]), mx.int8)}
    with pytest.raises(ModelRefused, match=f"{name} holds mlx.core.int8"):
        load(changed(random_checkpoint, tmp_path, tensors))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "gpt2"}, "what can: llama, mistral, qwen2, qwen3, smollm3"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "depends on the length"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "depends on the length"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantized by mlx-lm"),
        ({"num_hidden_layers": 5}, r"model\.layers\.4\."),
        ({"intermediate_size": 100}, r"model\.layers\.0\.mlp"),
    ],
)
def test_what_would_break_the_law_is_refused(
    random_checkpoint: Path, tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelRefused, match=message):
        load(changed(random_checkpoint, tmp_path, **fields))


def test_code_in_a_checkpoint_is_not_run(random_checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise SystemExit('it was run')")
    assert load(changed(random_checkpoint, tmp_path, model_file="mine.py")).facts.vocab_size == CONFIG["vocab_size"]


def test_the_limit_of_open_files_stays_and_nothing_is_compiled(random_checkpoint: Path) -> None:
    """Importing mlx-lm would lower it, in a process for good; MLX compiles what is fused by a C++ compiler."""
    source = f"""
import resource, subprocess
before = resource.getrlimit(resource.RLIMIT_NOFILE)
from kakeya_worker.conformance.tools.driving import open_session
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.mlx_backend import MlxVerifier
verifier = MlxVerifier({str(random_checkpoint)!r}, weights="auto", kv_dtype="auto", num_threads=1, cache_directory=None)
geometry = LaneGeometry(sink=2, window=14, chunk=8)
verifier.allocate(geometry, 1)
open_session(verifier, geometry).append(range(20))
assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
print("ran")
"""
    done = subprocess.run([sys.executable, "-c", source], env={"PATH": ""}, capture_output=True, text=True, timeout=150)
    assert done.stdout.endswith("ran\n"), done.stderr


def test_the_cache_of_buffers_is_limited(random_checkpoint: Path) -> None:
    load(random_checkpoint)
    assert mx.set_cache_limit(256 * 2**20) == 256 * 2**20  # it returns the limit before


def test_nothing_is_wired(random_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wired memory that comes and goes is what Macs crash over; mlx-lm wires as it generates."""

    def refuse(limit: int) -> int:
        raise AssertionError(f"{limit} bytes were to be wired")

    monkeypatch.setattr(mx, "set_wired_limit", refuse)
    verifier = load(random_checkpoint)
    geometry = LaneGeometry(sink=2, window=14, chunk=8)
    verifier.allocate(geometry, 1)
    open_session(verifier, geometry).append(range(20))


def test_without_mlx_the_install_line_is_said() -> None:
    source = """
import sys
sys.modules["mlx.core"] = None
from kakeya_worker.loading import load_engine
from kakeya_worker.settings import WorkerSettings
load_engine(WorkerSettings.parse(["--model", "m", "--backend", "mlx"]))
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60)
    assert "install it with: pip install 'kakeya-worker[mlx]'" in done.stderr


def test_a_head_of_its_own_is_used_whatever_config_json_says(random_checkpoint: Path, tmp_path: Path) -> None:
    """And no cached word of the model: its digest, by which sessions go to torch's workers, is an untied model's."""
    stored = mx.load(str(random_checkpoint / "model.safetensors"))
    assert isinstance(stored, dict)
    embedding = stored["model.embed_tokens.weight"]
    heads = {"lm_head.weight": embedding[::-1]}
    loaded = [
        changed(random_checkpoint, _made(tmp_path / str(is_tied)), heads, tie_word_embeddings=is_tied)
        for is_tied in (True, False)
    ]
    assert logits(loaded[0]) == logits(loaded[1]) != logits(random_checkpoint)
    assert load(loaded[0]).facts.model_digest == load(loaded[1]).facts.model_digest
    again = changed(random_checkpoint, _made(tmp_path / "again"), {"lm_head.weight": embedding})
    assert load(again).config.tied_head
    assert logits(again) == logits(random_checkpoint)


def test_a_table_that_stands_there_as_the_head_alone_is_the_embedding_too(
    random_checkpoint: Path, tmp_path: Path
) -> None:
    stored = mx.load(str(random_checkpoint / "model.safetensors"))
    assert isinstance(stored, dict)
    alone = {**stored, "lm_head.weight": stored["model.embed_tokens.weight"]}
    del alone["model.embed_tokens.weight"]
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    mx.save_safetensors(str(tmp_path / "model.safetensors"), alone)
    assert logits(tmp_path) == logits(random_checkpoint)
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "tie_word_embeddings": False}))
    with pytest.raises(ModelRefused, match=r"config\.json does not say that they are one"):
        load(tmp_path)


def test_the_type_is_the_file_s_own_where_config_json_says_none(random_checkpoint: Path, tmp_path: Path) -> None:
    stored = mx.load(str(random_checkpoint / "model.safetensors"))
    assert isinstance(stored, dict)
    cast = {name: tensor.astype(mx.bfloat16) for name, tensor in stored.items()}
    assert load(changed(random_checkpoint, tmp_path, cast, torch_dtype=None)).facts.weights == "bfloat16"


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory
