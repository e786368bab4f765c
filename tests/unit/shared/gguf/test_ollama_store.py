"""Models of Ollama's store, by their names; and what names of GGUF files stand for."""

import json
from pathlib import Path
from typing import Any

import pytest

from kakeya_shared.gguf import model_names, ollama_store
from kakeya_shared.gguf.gguf_error import GgufError
from tests import ollama_files
from tests.gguf_bytes import gguf

MODEL = gguf({"general.architecture": "llama"})


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


def test_a_model_is_found_by_any_of_its_names(store: Path) -> None:
    ollama_files.add(store, "tiny", MODEL)
    ollama_files.add(store, "tiny", MODEL + b"2", "135m", license=b"free")
    ollama_files.add(store, "fine", MODEL + b"3", place="someone")
    ollama_files.add(store, "far", MODEL + b"4", "q4", place="group", host="hub.example:5000")
    for name, content in (
        ("tiny", MODEL),
        ("tiny:latest", MODEL),
        ("library/tiny", MODEL),
        ("tiny:135m", MODEL + b"2"),
        ("someone/fine", MODEL + b"3"),
        ("hub.example:5000/group/far:q4", MODEL + b"4"),
    ):
        found = ollama_store.find(name)
        assert found.path.read_bytes() == content
        assert model_names.file_of(f"ollama:{name}") == found.path
    listed = {model.name: model.num_bytes for model in ollama_store.models()}
    size = len(MODEL)
    expected = {"tiny:latest": size, "tiny:135m": size + 5, "someone/fine:latest": size + 1}
    assert listed == expected | {"hub.example:5000/group/far:q4": size + 1}


def test_what_sees_is_a_file_of_its_own(store: Path) -> None:
    ollama_files.add(store, "plain", MODEL)
    ollama_files.add(store, "seeing", MODEL, projector=b"clip")
    assert [ollama_store.find(name).has_projector for name in ("plain", "seeing")] == [False, True]


def test_a_name_that_is_not_there_is_told_with_those_that_are(store: Path) -> None:
    with pytest.raises(GgufError, match=r"has no model 'tiny' \(it has: none\); `ollama pull tiny`"):
        ollama_store.find("tiny")
    ollama_files.add(store, "other", MODEL)
    with pytest.raises(GgufError, match=r"has no model 'tiny:1b' \(it has: other:latest\)"):
        ollama_store.find("tiny:1b")


@pytest.mark.parametrize("name", ["", "../x", "a/b/c/d", "a b", "tiny:", "/tiny", "..", "x/../../y", "tiny:../../z"])
def test_names_that_lead_elsewhere_are_none(store: Path, name: str) -> None:
    ollama_files.add(store, "tiny", MODEL)
    if name == "tiny:":
        assert ollama_store.find(name)
        return
    with pytest.raises(GgufError, match="is no name of Ollama's"):
        ollama_store.find(name)


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        ([], "cannot be read"),
        ({"layers": [{"mediaType": 1}]}, "cannot be read"),
        ({"layers": []}, "broken:latest has 0 files of weights"),
        (
            {"layers": [{"mediaType": ollama_files.KIND + "model", "digest": "sha256:../../x", "size": 1}]},
            "it names no SHA-256",
        ),
        (
            {"layers": [{"mediaType": ollama_files.KIND + "adapter", "digest": "sha256:0", "size": 1}]},
            r"has an adapter \(LoRA\), which cannot run here",
        ),
    ],
)
def test_a_manifest_that_is_no_models_is_refused_and_not_listed(store: Path, manifest: Any, reason: str) -> None:
    ollama_files.write_manifest(store, "broken", manifest)
    ollama_files.add(store, "tiny", MODEL)
    (store / "manifests/registry.ollama.ai/library/tiny/folder").mkdir()
    with pytest.raises(GgufError, match=reason):
        ollama_store.find("broken")
    assert [model.name for model in ollama_store.models()] == ["tiny:latest"]


def test_a_manifest_that_is_no_json_is_refused(store: Path) -> None:
    ollama_files.write_manifest(store, "broken", {}).write_text(json.dumps({"layers": []})[:-1])
    with pytest.raises(GgufError, match="cannot be read: JSONDecodeError"):
        ollama_store.find("broken")


def test_the_store_is_ollamas_own_where_no_variable_names_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert ollama_store.directory() == Path("/home/somebody/.ollama/models")


def test_names_are_told_apart_by_what_they_stand_for(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(MODEL)
    assert model_names.file_of(str(tmp_path / "blob")) == tmp_path / "blob"
    assert model_names.file_of("some/model.gguf") == Path("some/model.gguf")
    assert model_names.file_of("Qwen/Qwen3-0.6B") is None
    assert model_names.file_of(str(tmp_path)) is None


def test_clients_see_a_name_without_what_says_that_it_is_a_file() -> None:
    for model, name in (
        ("/models/Qwen3-0.6B", "Qwen3-0.6B"),
        ("Qwen/Qwen3-0.6B", "Qwen3-0.6B"),
        ("/models/SmolLM2.Q4_1.gguf", "SmolLM2.Q4_1"),
        ("big-00001-of-00003.gguf", "big"),
        ("ollama:smollm2:135m", "smollm2:135m"),
        ("ollama:someone/fine", "fine"),
        ("/", "/"),
    ):
        assert model_names.served_name(model) == name
