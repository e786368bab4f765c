"""Which tokenizers have the same digest: those that make the same ids of a text, however their file was written."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from kakeya_shared.contract.tokenizer_digest import TokenizerError, tokenizer_digest

TOKENIZER: dict[str, Any] = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [{"id": 2, "content": "<|end|>", "special": True}],
    "model": {"type": "BPE", "vocab": {"h\u00e9": 0, "a": 1}, "merges": [["h", "\u00e9"], ["a", "a"]], "dropout": 0.5},
}
CANONICAL = (
    '{"added_tokens":[{"content":"<|end|>","id":2,"special":true}],'
    '"model":{"dropout":0.5,"merges":[["h","\u00e9"],["a","a"]],"type":"BPE","vocab":{"a":1,"h\u00e9":0}}}'
)


def digest(directory: Path, content: str | bytes) -> str:
    """Of a directory that holds such a tokenizer.json."""
    (directory / "tokenizer.json").write_bytes(content.encode() if isinstance(content, str) else content)
    return tokenizer_digest(directory)


def test_it_is_that_of_the_canonical_form(tmp_path: Path) -> None:
    assert digest(tmp_path, json.dumps(TOKENIZER)) == hashlib.sha256(CANONICAL.encode()).hexdigest()


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(TOKENIZER, indent=2, ensure_ascii=False),
        json.dumps(TOKENIZER, sort_keys=True),
        json.dumps(TOKENIZER | {"version": "2.0"}),
        json.dumps(TOKENIZER | {"truncation": {"max_length": 512}}),
        json.dumps(TOKENIZER | {"padding": {"pad_id": 0}}),
        CANONICAL,
    ],
    ids=["other white space", "other order", "other version", "truncated", "padded", "left out"],
)
def test_a_file_that_was_saved_in_another_way_has_the_same(tmp_path: Path, content: str) -> None:
    assert digest(tmp_path, content) == digest(tmp_path, json.dumps(TOKENIZER))


@pytest.mark.parametrize(
    "edit",
    [
        {"added_tokens": []},
        {"normalizer": {"type": "NFC"}},
        {"model": TOKENIZER["model"] | {"vocab": {"h\u00e9": 1, "a": 0}}},
        {"model": TOKENIZER["model"] | {"merges": [["a", "a"], ["h", "\u00e9"]]}},
        {"model": TOKENIZER["model"] | {"version": "2.0"}},
    ],
    ids=["added tokens", "normalizer", "vocabulary", "merges", "version inside"],
)
def test_another_tokenizer_has_another(tmp_path: Path, edit: dict[str, Any]) -> None:
    assert digest(tmp_path, json.dumps(TOKENIZER | edit)) != digest(tmp_path, json.dumps(TOKENIZER))


def test_half_a_surrogate_pair_counts(tmp_path: Path) -> None:
    assert digest(tmp_path, r'{"vocab": {"\ud83d": 0}}') != digest(tmp_path, r'{"vocab": {"\ude00": 0}}')
    assert digest(tmp_path, r'{"vocab": {"\ud83d\ude00": 0}}') == digest(tmp_path, '{"vocab": {"\U0001f600": 0}}')


def test_a_checkpoint_without_one_has_none(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").touch()
    assert tokenizer_digest(tmp_path) == tokenizer_digest(tmp_path / "missing") == ""


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '"text"', "null", b"\xff", "[" * 100_000, '{"a": ' + "9" * 10_000 + "}"],
    ids=["empty", "half", "list", "text", "null", "no UTF-8", "deep", "a number without end"],
)
def test_what_is_no_json_object_is_an_error_with_its_path(tmp_path: Path, content: str | bytes) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json cannot be read: \S"):
        digest(tmp_path, content)


def test_what_cannot_be_opened_is_the_same_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").mkdir()
    with pytest.raises(TokenizerError, match="directory"):
        tokenizer_digest(tmp_path)
