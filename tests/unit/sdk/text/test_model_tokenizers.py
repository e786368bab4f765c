"""Texts of many scripts: ids and what is decoded of them are transformers', whatever way a tokenizer is built in."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

import kakeya_nano
from kakeya.text import tokenizer_loading
from kakeya.text.text_tokenizer import TextTokenizer
from tests.unit.sdk import model_tokenizers

TEXTS = model_tokenizers.texts(5_000)
NANO = Path(kakeya_nano.__file__).parent / "kakeya-nano"


@pytest.fixture(scope="module", params=["nano", *model_tokenizers.BUILDERS])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "nano":
        return NANO
    folder = tmp_path_factory.mktemp(request.param)
    model_tokenizers.BUILDERS[request.param](folder)
    return folder


@pytest.fixture(scope="module")
def library(folder: Path) -> Iterator[Any]:
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> TextTokenizer:
    return tokenizer_loading.load(str(folder))[0]


def test_the_ids_are_transformers(tokenizer: TextTokenizer, library: Any) -> None:
    for special_tokens in (True, False):
        expected = library(TEXTS, add_special_tokens=special_tokens)["input_ids"]
        assert [tokenizer.encode(text, special_tokens=special_tokens) for text in TEXTS] == expected


def test_what_is_decoded_is_what_transformers_decodes(tokenizer: TextTokenizer, library: Any) -> None:
    whole = [tokenizer.encode(text, special_tokens=True) for text in TEXTS[:1000]]
    cut = [ids[len(ids) // 3 : -1] for ids in whole if len(ids) > 4]
    for ids in [*whole, *cut]:
        for special_tokens in (True, False):
            expected = library.decode(ids, skip_special_tokens=not special_tokens)
            assert tokenizer.decode(ids, special_tokens=special_tokens) == expected


def test_it_knows_the_same_tokens(tokenizer: TextTokenizer, library: Any) -> None:
    assert tokenizer.eos_token_id == library.eos_token_id
    assert tokenizer.num_token_ids == len(library)
    told = tokenizer.config.special_tokens
    assert told == {name: text for name, text in library.special_tokens_map.items() if name in told}
    added = tokenizer.backend.get_added_tokens_decoder()
    assert {id_: (token.content, token.special) for id_, token in added.items()} == {
        id_: (token.content, token.special) for id_, token in library.added_tokens_decoder.items() if id_ in added
    }


def test_text_without_control_tokens_is_the_same_text_as_a_piece(tokenizer: TextTokenizer) -> None:
    """What lies between control tokens is encoded by tokenizers that have none; the ids must not show it."""
    encoder, contents = tokenizer.encoder, tokenizer.control.contents
    first_id, first = next(iter(contents.items()))
    for text in TEXTS[:1500]:
        if any(content in text for content in contents.values()):
            continue
        for special_tokens in (True, False):
            ids = tokenizer.encode(text, special_tokens=special_tokens)
            assert encoder.as_text(text, special_tokens=special_tokens) == ids
        assert [first_id, *encoder._between(first + text, len(first), len(first + text))] == tokenizer.encode(
            first + text
        )
