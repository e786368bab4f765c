"""Ids of a file's tokenizer are those of the tokenizer that it was made of, on texts of many scripts."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from kakeya_shared.gguf.tokenizer.directory import of_file
from tests import gguf_tokenizer
from tests.unit.sdk import model_tokenizers

TEXTS = model_tokenizers.texts(600, seed=7)
BY_PRE = {
    "llama-bpe": (model_tokenizers.llama3, True),
    "qwen2": (model_tokenizers.qwen, False),
    "smollm": (model_tokenizers.smollm, False),
}


def tokenizer(said: dict[str, Any], tmp_path: Path) -> Tokenizer:
    directory = of_file(gguf_tokenizer.write(tmp_path / "model.gguf", said))
    return Tokenizer.from_file(str(directory / "tokenizer.json"))


@pytest.mark.parametrize("pre", BY_PRE)
def test_byte_pairs_are_those_of_the_hubs_tokenizer(tmp_path: Path, pre: str) -> None:
    make, adds_bos = BY_PRE[pre]
    make(tmp_path / "hub")
    theirs = Tokenizer.from_file(str(tmp_path / "hub" / "tokenizer.json"))
    ours = tokenizer(gguf_tokenizer.of_hub(tmp_path / "hub", pre), tmp_path)
    control = [token.content for token in theirs.get_added_tokens_decoder().values()]
    for number, text in enumerate(TEXTS):
        text += control[number % len(control)] * (number % 3 == 0) + text[:5]
        expected, found = theirs.encode(text), ours.encode(text)
        assert found.ids == expected.ids, text
        assert ours.decode(found.ids) == theirs.decode(expected.ids)
        assert ours.decode(found.ids, skip_special_tokens=False) == theirs.decode(
            expected.ids, skip_special_tokens=False
        )
    assert (ours.encode("a").ids[0] == theirs.token_to_id("<|begin_of_text|>")) == adds_bos
    assert ours.encode("a", add_special_tokens=False).ids == theirs.encode("a", add_special_tokens=False).ids
    assert {(token.content, token.special) for token in ours.get_added_tokens_decoder().values()} == {
        (token.content, token.special) for token in theirs.get_added_tokens_decoder().values()
    }


@pytest.mark.parametrize("in_front", [True, False])
def test_pieces_are_those_of_sentencepiece(tmp_path: Path, in_front: bool) -> None:
    pieces = gguf_tokenizer.trained_pieces(
        tmp_path,
        model_tokenizers.texts(800, seed=1),
        model_type="bpe",
        vocab_size=1500,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=in_front,
        character_coverage=0.99,
    )
    ours = tokenizer(gguf_tokenizer.of_pieces(pieces, "llama", add_space_prefix=in_front), tmp_path)
    bos = ours.token_to_id("<s>")
    num_bytes = 0
    for text in filter(None, TEXTS):
        expected = pieces.encode(text)
        assert ours.encode(text).ids == [bos, *expected], text
        assert ours.decode(expected) == pieces.decode(expected)
        num_bytes += sum(pieces.is_byte(id_) for id_ in expected)
    assert num_bytes > 100


def test_unigrams_are_those_of_sentencepiece(tmp_path: Path) -> None:
    pieces = gguf_tokenizer.trained_pieces(
        tmp_path,
        model_tokenizers.texts(800, seed=1),
        model_type="unigram",
        vocab_size=1200,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        normalization_rule_name="nmt_nfkc",
        remove_extra_whitespaces=True,
    )
    said = gguf_tokenizer.of_pieces(pieces, "t5", remove_extra_whitespaces=True)
    ours = tokenizer(said, tmp_path)
    english = ["the end of a text is not its beginning", "  two  blanks  ", "ﬁne Ⅷ ①", "größer, 漢字! 123"]
    for text in [*english, *(" ".join(text.split()) for text in TEXTS if text.isascii() and text.strip())]:
        assert ours.encode(text).ids == [*pieces.encode(text), 1], text
