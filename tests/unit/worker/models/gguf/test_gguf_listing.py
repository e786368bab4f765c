"""What `kakeya models list` shows of GGUF files: in folders, and in Ollama's store."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from kakeya_worker import models_command
from kakeya_worker.hub.cached import LocalModel
from kakeya_worker.models.gguf import gguf_listing
from kakeya_worker.models.local_models import local_models
from tests import ollama_files
from tests.gguf_bytes import Tensor, gguf

QWEN3: dict[str, Any] = {
    "general.architecture": "qwen3",
    "general.file_type": 15,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "qwen2",
}


@pytest.fixture(autouse=True)
def no_other_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))


def listed(folder: Path) -> dict[str, LocalModel]:
    return {Path(model.model).name: model for model in gguf_listing.in_folder(folder)}


def test_files_are_found_below_a_folder_with_what_they_say(tmp_path: Path) -> None:
    (tmp_path / "folder" / "deeper").mkdir(parents=True)
    path = tmp_path / "folder" / "deeper" / "model.gguf"
    path.write_bytes(gguf(QWEN3))
    (tmp_path / "folder" / "other.txt").touch()
    assert list(gguf_listing.in_folder(tmp_path)) == [
        LocalModel(str(path), "file", path.stat().st_size, path, "", "qwen3", "Q4_K_M")
    ]


def test_of_several_files_the_first_stands_for_all(tmp_path: Path) -> None:
    files = [tmp_path / f"big-{number:05}-of-00003.gguf" for number in (1, 2, 3)]
    for file in files:
        file.write_bytes(gguf(QWEN3, [Tensor("a", [8], 0, bytes(32))]))
    (model,) = gguf_listing.in_folder(tmp_path)
    assert (model.model, model.num_bytes, model.problem) == (str(files[0]), 3 * files[0].stat().st_size, "")
    files[1].unlink()
    (model,) = gguf_listing.in_folder(tmp_path)
    assert model.problem == "2 of its 3 files are here"


@pytest.mark.parametrize(
    ("changed", "quantization", "problem", "note"),
    [
        ({}, "Q4_K_M", "", ""),
        ({"general.file_type": None}, "", "", ""),
        ({"general.file_type": 19}, "IQ2_XXS", "weights of IQ2_XXS cannot run", ""),
        ({"general.file_type": 13}, "Q3_K_L", "", ""),
        ({"general.architecture": "gemma3"}, "Q4_K_M", "the architecture 'gemma3' cannot run", ""),
        ({"tokenizer.ggml.pre": "own"}, "Q4_K_M", "", "on tokens alone: the pre-tokenizer 'own' is not known"),
        ({"tokenizer.ggml.model": "llama"}, "Q4_K_M", "", ""),
    ],
)
def test_what_runs_here_is_told(tmp_path: Path, changed: Any, quantization: str, problem: str, note: str) -> None:
    said = {key: value for key, value in (QWEN3 | changed).items() if value is not None}
    (tmp_path / "model.gguf").write_bytes(gguf(said))
    (model,) = gguf_listing.in_folder(tmp_path)
    assert (model.quantization, model.problem, model.note) == (quantization, problem, note)


def test_what_is_no_model_is_told(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"other")
    (tmp_path / "cut.gguf").write_bytes(gguf(QWEN3)[:70])
    os.mkfifo(tmp_path / "pipe.gguf")
    problems = {name: model.problem.partition(": ")[2] for name, model in listed(tmp_path).items()}
    assert problems == {
        "broken.gguf": "it is no GGUF file",
        "cut.gguf": "its header is cut off: get it anew",
        "pipe.gguf": "it is no file",
    }


def test_ollamas_models_are_listed_by_their_names(tmp_path: Path) -> None:
    ollama_files.add(tmp_path / "ollama", "tiny", gguf(QWEN3), "1b", license=b"free", projector=b"clip")
    ollama_files.add(tmp_path / "ollama", "gone", gguf(QWEN3 | {"general.file_type": 7}))
    (next(gguf_listing.in_ollamas_store()).directory).unlink()
    gone, tiny = gguf_listing.in_ollamas_store()
    assert (tiny.model, tiny.revision, tiny.family) == ("ollama:tiny:1b", "ollama", "qwen3")
    assert (tiny.problem, tiny.note) == ("", "what sees is left out")
    assert tiny.num_bytes == len(gguf(QWEN3)) + 8
    assert gone.problem.endswith("No such file or directory")


def test_all_are_listed_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "model.gguf").write_bytes(gguf(QWEN3 | {"tokenizer.ggml.pre": "own"}))
    ollama_files.add(tmp_path / "ollama", "tiny", gguf(QWEN3))
    assert models_command.main(["list", "--json", "--folder", str(tmp_path / "folder")]) == 0
    found = {each["model"]: each for each in json.loads(capsys.readouterr().out)["models"]}
    assert found["ollama:tiny:latest"]["quantization"] == "Q4_K_M"
    nano = found["kakeya-nano"]
    assert (nano["family"], nano["quantization"], nano["problem"], nano["note"]) == ("qwen3", "bfloat16", None, None)
    assert models_command.main(["list", "--folder", str(tmp_path / "folder")]) == 0
    assert "on tokens alone: the pre-tokenizer 'own' is not known" in capsys.readouterr().out
    assert models_command.main(["list", "--folder", str(tmp_path / "none")]) == 1
    assert "none is no directory" in capsys.readouterr().err


def test_a_checkpoint_that_no_worker_loads_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kakeya_worker.hub import cached

    def model(name: str, **config: Any) -> LocalModel:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config) if config else "[]")
        return LocalModel(name, "main", 1, tmp_path / name, "")

    found = [
        model("good", model_type="llava", text_config={"model_type": "llama", "torch_dtype": "float16"}),
        model("four", model_type="qwen3", quantization={"bits": 4, "group_size": 64}),
        model("bad", model_type="gemma3"),
        model("broken"),
        LocalModel("missing", "main", 1, tmp_path, "gone"),
    ]
    monkeypatch.setattr(cached, "local_models", lambda: iter(found))
    told = {each.model: (each.family, each.quantization, each.problem) for each in local_models()}
    assert told["good"] == ("llama", "float16", "")
    assert told["four"] == ("qwen3", "4bit", "")
    assert told["bad"] == ("gemma3", "", "model_type 'gemma3' cannot run")
    assert told["broken"][2].endswith("is not a JSON object")
    assert told["missing"] == ("", "", "gone")


def test_a_vocabulary_is_not_looked_at(tmp_path: Path) -> None:
    """To go past one takes a hundred times what the rest does, and there may be many files."""
    whole = gguf(QWEN3 | {"tokenizer.ggml.tokens": ["a", "b"]})
    (tmp_path / "model.gguf").write_bytes(whole[: -len("b") - 1])
    (model,) = gguf_listing.in_folder(tmp_path)
    assert (model.family, model.problem) == ("qwen3", "")
