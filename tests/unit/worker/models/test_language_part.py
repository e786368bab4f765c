"""Checkpoints that hold a language model among other parts."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, sink_window
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.language_part import config_of, name_of
from kakeya_worker.torch_backend import TorchVerifier

GEOMETRY = LaneGeometry(sink=4, window=64, chunk=32)


def load(directory: Path) -> TorchVerifier:
    return TorchVerifier(str(directory), weights="int8", kv_dtype="auto", num_threads=1, cache_directory=None)


def logits(directory: Path) -> bytes:
    verifier = load(directory)
    verifier.allocate(GEOMETRY, 1)
    verifier.forward([Lane(GEOMETRY, 0, sink_window(SessionOptions(), GEOMETRY)).row(tuple(range(30)))])
    return verifier.logits([0]).tobytes()


def wrap(plain: Path, directory: Path, prefix: str, replaces: str, **of_part: Any) -> Path:
    """A model that sees; names that begin with `replaces` begin with the prefix in it."""
    directory.mkdir()
    tensors = load_file(plain / "model.safetensors")
    renamed = {prefix + name.removeprefix(replaces): tensor for name, tensor in tensors.items()}
    first = next(iter(tensors.values()))
    save_file(renamed | {"vision_tower.patch.weight": first[:4, :4].copy()}, directory / "model.safetensors")
    part = json.loads((plain / "config.json").read_text()) | of_part
    config = {"model_type": "llava", "torch_dtype": part.pop("torch_dtype"), "text_config": part}
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.mark.parametrize(
    ("prefix", "replaces"), [("language_model.", ""), ("model.language_model.", "model.")], ids=["early", "late"]
)
def test_it_has_the_logits_that_it_has_alone(
    random_checkpoint: Path, tmp_path: Path, prefix: str, replaces: str
) -> None:
    assert logits(wrap(random_checkpoint, tmp_path / "sees", prefix, replaces)) == logits(random_checkpoint)


def test_one_of_another_family_is_refused(random_checkpoint: Path, tmp_path: Path) -> None:
    wrapped = wrap(random_checkpoint, tmp_path / "sees", "language_model.", "", model_type="gemma3_text")
    with pytest.raises(ModelRefused, match="'gemma3_text' cannot run"):
        load(wrapped)


def test_what_is_said_outside_of_the_part_completes_it() -> None:
    part = {"model_type": "llama", "dtype": "float32"}
    whole = {"model_type": "seer", "text_config": part, "dtype": "bfloat16", "quantization": {"bits": 4}}
    assert config_of(whole) == {"model_type": "llama", "dtype": "float32", "quantization": {"bits": 4}}
    assert config_of({"text_config": part}) == part
    assert config_of(part) is part


@pytest.mark.parametrize(
    ("wrapper", "outside", "of_part", "ties"),
    [
        ("llava", {}, {}, None),
        ("llava", {}, {"tie_word_embeddings": True}, True),
        ("llava", {"tie_word_embeddings": False}, {"tie_word_embeddings": True}, True),
        ("llava", {"tie_word_embeddings": True}, {}, True),
        ("llava", {"tie_word_embeddings": True}, {"tie_word_embeddings": False}, True),
        ("mistral3", {}, {}, True),
        ("mistral3", {}, {"tie_word_embeddings": False}, True),
        ("mistral3", {"tie_word_embeddings": False}, {}, None),
        ("mistral3", {"tie_word_embeddings": False}, {"tie_word_embeddings": False}, False),
    ],
)
def test_the_embedding_is_the_head_where_either_says_so_or_the_wrapper_is_of_that_kind(
    wrapper: str, outside: dict[str, Any], of_part: dict[str, Any], ties: bool | None
) -> None:
    whole = {"model_type": wrapper, **outside, "text_config": {"model_type": "llama", **of_part}}
    assert config_of(whole).get("tie_word_embeddings") is ties


def test_a_part_that_leaves_out_what_its_wrapper_s_kind_says() -> None:
    assert config_of({"model_type": "internvl", "text_config": {}})["model_type"] == "qwen2"
    part = config_of({"model_type": "voxtral", "text_config": {"hidden_size": 64}})
    assert part["model_type"] == "llama"
    assert (part["hidden_size"], part["num_hidden_layers"]) == (64, 30)


def test_tensors_of_other_parts_keep_their_names() -> None:
    assert name_of("vision_tower.language_model.weight") == "vision_tower.language_model.weight"
    assert name_of("lm_head.weight") == "lm_head.weight"
