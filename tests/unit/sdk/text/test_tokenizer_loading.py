"""Tokenizers of newer libraries, and broken ones: one line each, whatever a library raises."""

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kakeya.text import tokenizer_files, tokenizer_loading
from kakeya.text.chat_tokenizer import ChatTokenizer, TokenizerError
from tests import gguf_tokenizer, ollama_files
from tests.unit.sdk import model_tokenizers
from tests.unit.sdk.chatting import Talk

Broken = Callable[..., Path]
"""A copy of a sound tokenizer, with some of its files others, or gone where None."""


@pytest.fixture
def broken(template_dir: Path, tmp_path: Path) -> Broken:
    def broken(**files: Any) -> Path:
        folder = tmp_path / "broken"
        shutil.copytree(template_dir, folder)
        for name, content in files.items():
            path = folder / (name if "." in name else f"{name}.json")
            if content is None:
                path.unlink()
            else:
                path.write_text(content if isinstance(content, str) else json.dumps(content))
        return folder

    return broken


def _refusal(folder: Path) -> str:
    with pytest.raises(TokenizerError) as refusal:
        ChatTokenizer(str(folder))
    start, _, reason = str(refusal.value).partition(": ")
    assert start == f"no tokenizer can be loaded from '{folder}'"
    assert "\n" not in reason
    return reason


def _changed(template_dir: Path, name: str, **fields: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((template_dir / f"{name}.json").read_text())
    return {**document, **fields}


@pytest.mark.parametrize(
    "fields",
    [
        {"model": {"type": "Newer", "vocab": {}}},
        {"pre_tokenizer": {"type": "Newer"}},
        {"decoder": {"type": "Newer"}},
        {"normalizer": {"type": "Newer"}},
        {"version": "9.0"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_one_of_a_newer_library_names_the_versions_that_do_not_know_it(
    broken: Broken, template_dir: Path, fields: dict[str, Any]
) -> None:
    reason = _refusal(broken(tokenizer=_changed(template_dir, "tokenizer", **fields)))
    assert "(with tokenizers 0." in reason
    assert reason.endswith("; if it is of a newer one, install that)")


@pytest.mark.parametrize("content", ["{", "", "[]", "null", "5", "[" * 100_000])
@pytest.mark.parametrize("name", ["tokenizer", "tokenizer_config"])
def test_a_broken_file(broken: Broken, name: str, content: str) -> None:
    assert _refusal(broken(**{name: content}))


@pytest.mark.parametrize("fields", [{"model": None}, {"added_tokens": 5}], ids=lambda fields: next(iter(fields)))
def test_a_tokenizer_of_wrong_types(broken: Broken, template_dir: Path, fields: dict[str, Any]) -> None:
    assert _refusal(broken(tokenizer=_changed(template_dir, "tokenizer", **fields)))


@pytest.mark.parametrize(
    "fields",
    [
        {"eos_token": 5},
        {"eos_token": {"special": True}},
        {"added_tokens_decoder": {"x": 5}},
        {"added_tokens_decoder": {"5": 5}},
        {"extra_special_tokens": 5},
        {"extra_special_tokens": [5]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_config_of_wrong_types(broken: Broken, template_dir: Path, fields: dict[str, Any]) -> None:
    assert _refusal(broken(tokenizer_config=_changed(template_dir, "tokenizer_config", **fields)))


@pytest.mark.parametrize("template", [5, True, ["x"], {"default": 7}, [{"name": "default"}]], ids=repr)
def test_a_chat_template_that_is_no_text(broken: Broken, template_dir: Path, template: object) -> None:
    config = _changed(template_dir, "tokenizer_config", chat_template=template)
    assert _refusal(broken(tokenizer_config=config, **{"chat_template.jinja": None}))


def test_a_vocabulary_that_is_missing(broken: Broken) -> None:
    assert _refusal(broken(tokenizer=None)) == "it has no tokenizer.json"


@pytest.mark.parametrize("name", ["tokenizer.model", "tekken.json", "vocab.json", "qwen.tiktoken"])
def test_vocabularies_of_other_libraries_are_refused_with_the_cure(broken: Broken, name: str) -> None:
    """SentencePiece's is the commonest."""
    folder = broken(tokenizer=None, **{name: "x"})
    reason = _refusal(folder)
    assert reason.startswith(f"it has no tokenizer.json, only {name}; write one once, where transformers and ")
    assert f"T.from_pretrained('{folder}').save_pretrained('{folder}')" in reason


def test_a_fault_within_the_library(broken: Broken, template_dir: Path) -> None:
    """It panics over the first text, which in Python is no Exception."""
    charsmap = base64.b64encode(bytes([4, 0, 0, 0]) + b"abcd").decode()
    normalizer = {"type": "Precompiled", "precompiled_charsmap": charsmap}
    reason = _refusal(broken(tokenizer=_changed(template_dir, "tokenizer", normalizer=normalizer)))
    assert reason.startswith("PanicException: index out of bounds")


def test_whoever_interrupts_it_is_heard(template_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tokenizer_loading, "_check_vocabulary", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ChatTokenizer(str(template_dir))


def test_a_chat_says_it_in_one_line(
    talk: Talk, broken: Broken, template_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = broken(tokenizer=_changed(template_dir, "tokenizer", model={"type": "Newer"}))
    assert talk("hi\n", tokenizer=folder) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"kakeya chat: error: no tokenizer can be loaded from '{folder}': ")


def test_a_gguf_files_tokenizer_is_one_too(template_dir: Path, tmp_path: Path) -> None:
    """By its path, or by the name that Ollama's store has for it."""
    model_tokenizers.smollm(tmp_path / "hub")
    said = gguf_tokenizer.of_hub(tmp_path / "hub", "smollm") | {"tokenizer.chat_template": "{{ messages[0].content }}"}
    path = gguf_tokenizer.write(tmp_path / "model.gguf", said)
    of_hub, of_file = ChatTokenizer(str(tmp_path / "hub"), is_plain=True), ChatTokenizer(str(path))
    assert of_file.encode("größer als 12 <|im_end|>") == of_hub.encode("größer als 12 <|im_end|>")
    assert of_file.eos_token_ids[: len(of_hub.eos_token_ids)] == of_hub.eos_token_ids
    assert of_file.prompt([{"role": "user", "content": "Hello"}]) == of_hub.encode("Hello")
    assert (of_file.name, of_file.directory.name != path.name) == (str(path), True)


def test_a_model_of_ollamas_brings_its_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model_tokenizers.smollm(tmp_path / "hub")
    path = gguf_tokenizer.write(tmp_path / "model.gguf", gguf_tokenizer.of_hub(tmp_path / "hub", "smollm"))
    ollama_files.add(tmp_path / "store", "tiny", path.read_bytes())
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "store"))
    assert ChatTokenizer("ollama:tiny").encode("a 12") == ChatTokenizer(str(path)).encode("a 12")
    with pytest.raises(TokenizerError, match=r"loaded from 'ollama:other': .* has no model 'other'"):
        ChatTokenizer("ollama:other")


def test_who_reads_gguf_files_may_not_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_files, "entry_points", lambda **_: [])
    (tmp_path / "model.gguf").touch()
    with pytest.raises(
        TokenizerError, match="nothing here reads GGUF files; install it with: pip install kakeya-shared"
    ):
        ChatTokenizer(str(tmp_path / "model.gguf"))


def test_a_file_that_is_no_tokenizer_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json is no GGUF file"):
        ChatTokenizer(str(tmp_path / "tokenizer.json"))
