"""The files of a GGUF file's tokenizer: what they say, when they are written, and what is refused."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from kakeya_shared.contract.tokenizer_digest import tokenizer_digest
from kakeya_shared.gguf.gguf_error import GgufError
from kakeya_shared.gguf.tokenizer.directory import of_file, tokenizer_directory
from tests import gguf_tokenizer
from tests.gguf_bytes import F32, I32, LIST, Typed

SMALL: dict[str, Any] = {
    "general.architecture": "llama",
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": ["a", "b", "ab", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>"],
    "tokenizer.ggml.token_type": [1, 1, 1, 3, 3, 3, 4],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.bos_token_id": 3,
    "tokenizer.ggml.eos_token_id": 4,
    "tokenizer.chat_template": "{{ messages }}",
}
PIECES: dict[str, Any] = {
    "general.architecture": "llama",
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "▁", "a", "▁a"],
    "tokenizer.ggml.scores": Typed([0.0, 0.0, 0.0, -2.0, -3.0, -1.0], LIST, F32),
    "tokenizer.ggml.token_type": Typed([2, 3, 3, 1, 1, 1], LIST, I32),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


def files(path: Path, said: dict[str, Any]) -> dict[str, Any]:
    """What is written, by the files' names."""
    found = of_file(gguf_tokenizer.write(path, said))
    return {each.name: json.loads(each.read_text()) for each in found.iterdir()}


def refused(path: Path, said: dict[str, Any]) -> str:
    with pytest.raises(GgufError) as raised:
        of_file(gguf_tokenizer.write(path, said))
    assert str(path) in str(raised.value)
    return str(raised.value)


def test_files_say_what_the_file_says(path: Path) -> None:
    written = files(path, SMALL)
    assert written.keys() == {"tokenizer.json", "tokenizer_config.json", "generation_config.json"}
    assert written["tokenizer_config.json"] == {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "chat_template": "{{ messages }}",
        "clean_up_tokenization_spaces": False,
    }
    assert written["tokenizer.json"]["post_processor"] is None
    assert Tokenizer.from_str(json.dumps(written["tokenizer.json"])).encode("ab<|im_end|>").ids == [2, 4]


def test_several_tokens_end_an_answer(path: Path) -> None:
    """Those that the file names, and control tokens that are known to."""
    assert files(path, SMALL)["generation_config.json"] == {"eos_token_id": [4, 5]}
    more = {"tokenizer.ggml.eot_token_id": 5, "tokenizer.ggml.eom_token_id": 3}
    assert files(path, SMALL | more)["generation_config.json"] == {"eos_token_id": [4, 5, 3]}
    as_text = SMALL | {"tokenizer.ggml.token_type": [1, 1, 1, 3, 3, 1, 4]}
    assert files(path, as_text)["generation_config.json"] == {"eos_token_id": [4]}
    none = SMALL | {"tokenizer.ggml.eos_token_id": Typed(2**32 - 1, 4)}
    assert files(path, none)["generation_config.json"] == {"eos_token_id": [4, 5]}
    assert "eos_token" not in files(path, none)["tokenizer_config.json"]


def test_what_stands_around_a_text_is_what_the_file_says(path: Path) -> None:
    def ids(**keys: bool) -> list[int]:
        said = SMALL | {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
        return list(Tokenizer.from_str(json.dumps(files(path, said)["tokenizer.json"])).encode("ab").ids)

    assert ids() == [2]
    assert ids(add_bos_token=True) == [3, 2]
    assert ids(add_eos_token=True) == [2, 4]
    assert ids(add_bos_token=True, add_eos_token=True) == [3, 2, 4]
    two = Tokenizer.from_str(json.dumps(files(path, SMALL | {"tokenizer.ggml.add_bos_token": True})["tokenizer.json"]))
    assert two.encode("a", "b").ids == [3, 0, 3, 1]


def test_llamas_pieces_begin_with_a_first_token_unless_the_file_says_no(path: Path) -> None:
    def ids(**keys: Any) -> list[int]:
        said = PIECES | {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
        return list(Tokenizer.from_str(json.dumps(files(path, said)["tokenizer.json"])).encode("a").ids)

    assert ids() == [1, 5]
    assert ids(add_bos_token=False) == [5]
    assert ids(add_space_prefix=False) == [1, 4]
    assert files(path, PIECES)["generation_config.json"] == {"eos_token_id": [2]}
    config = files(path, PIECES)["tokenizer_config.json"]
    assert (config["bos_token"], config["eos_token"], config["unk_token"]) == ("<s>", "</s>", "<unk>")


def test_templates_have_names(path: Path) -> None:
    said = SMALL | {
        "tokenizer.chat_templates": ["tool_use", "rag"],
        "tokenizer.chat_template.tool_use": "tools",
        "tokenizer.chat_template.rag": "",
    }
    assert files(path, said)["tokenizer_config.json"]["chat_template"] == [
        {"name": "default", "template": "{{ messages }}"},
        {"name": "tool_use", "template": "tools"},
    ]
    assert "chat_template" not in files(path, SMALL | {"tokenizer.chat_template": None})["tokenizer_config.json"]


def test_qwens_files_need_not_say_how_they_cut(path: Path) -> None:
    lacking = SMALL | {"tokenizer.ggml.pre": None}
    named = files(path, SMALL | {"tokenizer.ggml.pre": "qwen2"})["tokenizer.json"]
    assert files(path, lacking | {"general.architecture": "qwen3"})["tokenizer.json"] == named
    assert named["normalizer"] == {"type": "NFC"}
    assert "it does not say its pre-tokenizer, and none is guessed" in refused(path, lacking)


def test_it_is_written_once_and_found_by_its_content(path: Path, tmp_path: Path) -> None:
    first = of_file(gguf_tokenizer.write(path, SMALL))
    written = (first / "tokenizer.json").stat().st_mtime_ns
    again = of_file(gguf_tokenizer.write(tmp_path / "elsewhere.gguf", SMALL))
    assert again == first
    assert (first / "tokenizer.json").stat().st_mtime_ns == written
    other = of_file(gguf_tokenizer.write(path, SMALL | {"tokenizer.ggml.add_bos_token": True}))
    assert other != first
    assert first.parent == Path(os.environ["XDG_CACHE_HOME"]) / "kakeya" / "tokenizers"
    assert len(tokenizer_digest(first)) == 64
    assert tokenizer_digest(first) != tokenizer_digest(other)


def test_what_was_broken_off_is_written_again(path: Path) -> None:
    first = of_file(gguf_tokenizer.write(path, SMALL | {"a": 1}))
    (first / "tokenizer.json").unlink()
    (first / "tokenizer_config.json").write_text("{")
    assert of_file(path) == first
    assert json.loads((first / "tokenizer_config.json").read_text())["eos_token"] == "<|im_end|>"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"tokenizer.ggml.model": "bert"}, "its tokenizer is of the kind 'bert'; what can be read: gpt2, llama, t5"),
        ({"tokenizer.ggml.model": None}, "it holds no tokenizer"),
        ({"tokenizer.ggml.tokens": None}, "it holds no tokenizer"),
        ({"tokenizer.ggml.tokens": ["a", "b", "ab", "c", "d", "a", "e"]}, "tokenizer.ggml.tokens holds a token twice"),
        ({"tokenizer.ggml.token_type": [1]}, "tokenizer.ggml.token_type is of 1 tokens, and there are 7"),
        (
            {"tokenizer.ggml.pre": "own"},
            "the pre-tokenizer 'own' is not known, and none is guessed; known are: deepseek-r1-qwen",
        ),
        ({"tokenizer.ggml.merges": None}, "it does not say tokenizer.ggml.merges"),
        ({"tokenizer.ggml.merges": ["ab"]}, "tokenizer.ggml.merges holds 'ab', which is no pair"),
        ({"tokenizer.ggml.merges": ["a b c"]}, "tokenizer.ggml.merges holds 'a b c', which is no pair"),
        ({"tokenizer.ggml.eos_token_id": 7}, "tokenizer.ggml.eos_token_id is 7, and there are 7 tokens"),
    ],
)
def test_what_is_not_known_is_refused(path: Path, changed: dict[str, Any], reason: str) -> None:
    assert reason in refused(path, SMALL | changed)


def test_pieces_without_scores_or_of_many_letters_are_refused(path: Path) -> None:
    assert "tokenizer.ggml.scores" in refused(path, PIECES | {"tokenizer.ggml.scores": None})
    assert "tokenizer.ggml.scores" in refused(
        path, PIECES | {"tokenizer.ggml.model": "t5", "tokenizer.ggml.scores": None}
    )
    long = PIECES | {"tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "▁", "a", "a" * 600]}
    assert "a token has 600 letters" in refused(path, long)


def test_a_unigram_may_normalize_nothing(path: Path) -> None:
    written = files(path, PIECES | {"tokenizer.ggml.model": "t5", "tokenizer.ggml.add_space_prefix": False})
    assert written["tokenizer.json"]["normalizer"] is None
    assert Tokenizer.from_str(json.dumps(written["tokenizer.json"])).encode("a").ids == [4, 1]


def test_a_cache_that_cannot_be_written_is_told(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gguf_tokenizer.write(path, SMALL)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(GgufError, match=r"cannot be kept in .*: Not a directory"):
        of_file(path)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda given: given)
    with pytest.raises(GgufError, match="there is no home directory"):
        of_file(path)


def test_a_name_that_is_no_file_of_this_kind_is_told(path: Path) -> None:
    gguf_tokenizer.write(path, SMALL)
    assert tokenizer_directory(str(path)) == str(of_file(path))
    with pytest.raises(GgufError, match=r"Qwen/Qwen3-0\.6B is no GGUF file"):
        tokenizer_directory("Qwen/Qwen3-0.6B")
