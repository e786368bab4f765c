"""Vocabularies from tokenizer.json: what can be used, and what is refused with the reason."""

import json
from pathlib import Path
from typing import Any

import pytest

from kakeya_worker.conformance.tools.tokenizer_files import NUM_TOKENS, write_tokenizer
from kakeya_worker.grammars.vocabulary import VocabularyError, library_name, load

THREE = {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2}, "merges": []}
# The model has another token of that id.
TWICE = {"id": 1, "content": "x", "special": True} | dict.fromkeys(
    ("single_word", "lstrip", "rstrip", "normalized"), False
)


def changed(directory: Path, **changes: Any) -> Path:
    path = write_tokenizer(directory)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return path


@pytest.mark.parametrize("vocab_size", [NUM_TOKENS, NUM_TOKENS + 1, 1024])
def test_the_end_is_a_token_that_the_tokenizer_does_not_have(tmp_path: Path, vocab_size: int) -> None:
    vocabulary = load(write_tokenizer(tmp_path), vocab_size)
    assert (vocabulary.size, vocabulary.end_id) == (vocab_size, NUM_TOKENS)
    assert vocabulary.num_ids == max(vocab_size, NUM_TOKENS + 1)
    assert vocabulary.tokenizer.is_special_token(vocabulary.end_id)


def test_pieces_with_scores_are_a_vocabulary_too(tmp_path: Path) -> None:
    pieces = [["<unk>", 0.0], ["a", -1.0], ["\u2581b", -2.0]]
    model = {"type": "Unigram", "unk_id": 0, "byte_fallback": True, "vocab": pieces}
    space = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
    decoder = {"type": "Sequence", "decoders": [space, {"type": "ByteFallback"}, {"type": "Fuse"}]}
    path = changed(tmp_path, model=model, decoder=decoder, pre_tokenizer=None, added_tokens=None)
    assert load(path, 3).end_id == 3


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (lambda directory: None, "brings no tokenizer.json"),
        (lambda directory: directory / "missing.json", "No such file"),
        (lambda directory: changed(directory, model={"type": "BPE"}), "vocab"),
        (lambda directory: changed(directory, model=3), "cannot be used"),
        (lambda directory: changed(directory, decoder=None), "decoder"),
        (lambda directory: changed(directory, model={"type": "BPE", "vocab": {"a": 0, "b": 7}, "merges": []}), "."),
        (lambda directory: changed(directory, model=THREE, added_tokens=[TWICE]), "do not have the ids that it says"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(tmp_path: Path, path: Any, why: str) -> None:
    with pytest.raises(VocabularyError, match=why):
        load(path(tmp_path), NUM_TOKENS)


def test_a_tokenizer_with_more_ids_than_the_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match=f"it has {NUM_TOKENS} ids, and the model {NUM_TOKENS - 1}"):
        load(write_tokenizer(tmp_path), NUM_TOKENS - 1)


def test_the_name_says_what_masks_depend_on() -> None:
    names = {library_name("a", 7), library_name("b", 7), library_name("a", 8)}
    assert len(names) == 3
    for name in names:
        assert name.startswith("grammar-library-1-")
        assert len(name) <= 64
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
