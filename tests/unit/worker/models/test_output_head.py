"""Which matrix makes the logits: the weights say it, and config.json only where they leave it open."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from structlog.testing import capture_logs
from structlog.typing import EventDict

from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, sink_window
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.torch_backend import TorchVerifier

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
GEOMETRY = LaneGeometry(sink=4, window=64, chunk=32)
MODES = ["float32", "int8"]


@pytest.fixture
def logs() -> Iterator[list[EventDict]]:
    with capture_logs() as lines:
        yield lines


def changed(plain: Path, directory: Path, tensors: Mapping[str, torch.Tensor], **fields: Any) -> Path:
    """A checkpoint with other tensors, and with some of its config.json changed, or left out where None."""
    directory.mkdir()
    config = json.loads((plain / "config.json").read_text()) | fields
    config = {name: value for name, value in config.items() if value is not None or name not in fields}
    (directory / "config.json").write_text(json.dumps(config))
    save_file(dict(tensors), directory / "model.safetensors")
    return directory


def load(directory: Path, weights: str, cache_directory: Path | None = None) -> TorchVerifier:
    return TorchVerifier(
        str(directory), weights=weights, kv_dtype="auto", num_threads=1, cache_directory=cache_directory
    )


def logits(verifier: TorchVerifier) -> NDArray[np.float32]:
    verifier.allocate(GEOMETRY, 1)
    verifier.forward([Lane(GEOMETRY, 0, sink_window(SessionOptions(), GEOMETRY)).row(tuple(range(30)))])
    return verifier.logits([0])[0]


def same(one: TorchVerifier, other: TorchVerifier) -> bool:
    """Bits of float32 also depend on where a file's tensors lie in memory."""
    return np.allclose(logits(one), logits(other), rtol=0, atol=0 if one.facts.exact else 1e-4)


@pytest.fixture
def tensors(random_checkpoint: Path) -> dict[str, torch.Tensor]:
    """Those of a tied model."""
    return load_file(random_checkpoint / "model.safetensors")


@pytest.fixture
def own_head(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    return tensors[EMBEDDING].flip(0).contiguous()


@pytest.mark.parametrize("weights", MODES)
def test_a_head_of_its_own_is_used_whatever_config_json_says(
    random_checkpoint: Path,
    tmp_path: Path,
    tensors: dict[str, torch.Tensor],
    own_head: torch.Tensor,
    weights: str,
    logs: list[EventDict],
) -> None:
    untied = changed(random_checkpoint, tmp_path / "a", {**tensors, HEAD: own_head}, tie_word_embeddings=False)
    expected = load(untied, weights)
    assert not [line for line in logs if line["log_level"] == "warning"]
    believed = load(changed(random_checkpoint, tmp_path / "b", {**tensors, HEAD: own_head}), weights)
    (warning,) = [line for line in logs if line["log_level"] == "warning"]
    assert "an output head that is not the embedding" in warning["event"]
    assert same(believed, expected)
    assert not same(believed, load(random_checkpoint, weights))
    assert believed.facts.model_digest == expected.facts.model_digest


@pytest.mark.parametrize("weights", MODES)
def test_a_head_that_is_the_embedding_again_is_tied(
    random_checkpoint: Path, tmp_path: Path, tensors: dict[str, torch.Tensor], weights: str, logs: list[EventDict]
) -> None:
    both = {**tensors, HEAD: tensors[EMBEDDING].clone()}
    verifier = load(changed(random_checkpoint, tmp_path / "both", both), weights)
    assert verifier.config.tied_head
    assert same(verifier, load(random_checkpoint, weights))
    assert not [line for line in logs if line["log_level"] == "warning"]


@pytest.mark.parametrize("weights", MODES)
def test_a_table_that_stands_there_as_the_head_alone_is_the_embedding_too(
    random_checkpoint: Path, tmp_path: Path, tensors: dict[str, torch.Tensor], weights: str
) -> None:
    tensors[HEAD] = tensors.pop(EMBEDDING)
    alone = load(changed(random_checkpoint, tmp_path / "alone", tensors), weights)
    assert same(alone, load(random_checkpoint, weights))


@pytest.mark.parametrize("missing", [EMBEDDING, HEAD])
@pytest.mark.parametrize("said", [False, None])  # None: nothing, and a Qwen3 ties nothing by default
def test_one_table_alone_that_nothing_ties_is_refused(
    random_checkpoint: Path, tmp_path: Path, tensors: dict[str, torch.Tensor], missing: str, said: bool | None
) -> None:
    both = {**tensors, HEAD: tensors[EMBEDDING].clone()}
    del both[missing]
    with pytest.raises(ModelRefused, match=r"config\.json does not say that they are one \(tie_word_embeddings\)"):
        load(changed(random_checkpoint, tmp_path / "one", both, tie_word_embeddings=said), "int8")


def test_weights_that_were_converted_as_tied_are_not_taken_for_those_of_a_head_of_its_own(
    random_checkpoint: Path, tmp_path: Path, tensors: dict[str, torch.Tensor], own_head: torch.Tensor
) -> None:
    cache = tmp_path / "cache"
    tied = load(
        changed(random_checkpoint, tmp_path / "a", {**tensors, HEAD: tensors[EMBEDDING].clone()}), "int8", cache
    )
    own = load(changed(random_checkpoint, tmp_path / "b", {**tensors, HEAD: own_head}), "int8", cache)
    assert len(list((cache / "int8").glob("*.safetensors"))) == 2
    assert same(load(tmp_path / "b", "int8", cache), own)
    assert not same(own, tied)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_type_is_the_file_s_own_where_config_json_says_none(
    random_checkpoint: Path,
    tmp_path: Path,
    tensors: dict[str, torch.Tensor],
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kakeya_worker.torch_backend.mode.problem_with_floats", lambda: "no exact mode here")
    cast = {name: tensor.to(dtype) for name, tensor in tensors.items()}
    silent = changed(random_checkpoint, tmp_path / "silent", cast, torch_dtype=None)
    assert f"torch.{load(silent, 'auto').facts.weights}" == str(dtype)


def test_tensors_that_an_index_does_not_name_are_there_all_the_same(
    random_checkpoint: Path, tmp_path: Path, tensors: dict[str, torch.Tensor], own_head: torch.Tensor
) -> None:
    directory = changed(random_checkpoint, tmp_path / "sharded", {**tensors, HEAD: own_head})
    (directory / "model.safetensors").rename(directory / "shard.safetensors")
    index = {"weight_map": dict.fromkeys(tensors, "shard.safetensors")}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    assert not load(directory, "float32").config.tied_head
