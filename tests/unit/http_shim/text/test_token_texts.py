import json
from pathlib import Path
from unicodedata import normalize

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from kakeya_http_shim.models.model_tokenizer import ModelTokenizer
from kakeya_http_shim.text.token_texts import TokenTexts
from tests.unit.sdk import tiny_tokenizer

UNFINISHED = "\N{REPLACEMENT CHARACTER}"


def _saved(folder: Path, vocabulary: list[str], decoder: decoders.Decoder | None) -> TokenTexts:
    tokenizer = Tokenizer(models.BPE(vocab={token: id_ for id_, token in enumerate(vocabulary)}, merges=[]))
    if decoder is not None:
        tokenizer.decoder = decoder
    tiny_tokenizer.save_files(folder, tokenizer)
    return TokenTexts(ModelTokenizer(str(folder)))


@pytest.fixture(scope="module")
def nano() -> ModelTokenizer:
    return ModelTokenizer("kakeya-nano")


def test_the_bytes_of_tokens_are_the_bytes_of_the_text(nano: ModelTokenizer) -> None:
    texts = TokenTexts(nano)
    letters = "".join(map(chr, range(0x800)))
    text = normalize("NFC", letters) + "漢字 €𝄞\n\t x  y" + chr(0x40000) + chr(0xFFFFF) + chr(0x10FFFF)
    assert b"".join(texts.bytes(id_) for id_ in nano.text_prompt(text).token_ids) == text.encode()


def test_each_byte_has_its_letter(tmp_path: Path) -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    texts = _saved(tmp_path, letters, decoders.Sequence([decoders.Fuse(), decoders.ByteLevel()]))
    assert sorted(texts.bytes(id_) for id_ in range(256)) == [bytes([byte]) for byte in range(256)]
    decoder = decoders.ByteLevel()
    for id_, letter in enumerate(letters):
        assert texts.text(id_) == decoder.decode([letter])


def test_half_a_character_is_replaced_and_special_tokens_are_seen(tmp_path: Path) -> None:
    tiny_tokenizer.save(tmp_path, template=False)
    tokenizer = ModelTokenizer(str(tmp_path))
    texts = TokenTexts(tokenizer)
    first, *_ = tokenizer.text_prompt("é").token_ids
    assert (texts.text(first), texts.bytes(first)) == (UNFINISHED, "é".encode()[:1])
    assert (texts.text(256), texts.bytes(256)) == (tiny_tokenizer.END, tiny_tokenizer.END.encode())


def test_what_no_token_is_has_no_text(nano: ModelTokenizer) -> None:
    texts = TokenTexts(nano)
    assert (texts.text(10**6), texts.bytes(10**6)) == ("", b"")


def test_an_added_token_is_its_text_whatever_letters_it_has(tmp_path: Path) -> None:
    tiny_tokenizer.save(tmp_path, template=False)
    tiny_tokenizer.add(tmp_path, "Ġé", "<0x41>", "▁")
    texts = TokenTexts(ModelTokenizer(str(tmp_path)))
    assert [texts.text(id_) for id_ in (258, 259, 260)] == ["Ġé", "<0x41>", "▁"]


def test_a_token_that_was_not_learned_in_letters_of_bytes_is_its_text(tmp_path: Path) -> None:
    texts = _saved(tmp_path, ["a", "漢Ġ"], decoders.ByteLevel())
    assert (texts.text(1), texts.bytes(1)) == ("漢Ġ", "漢Ġ".encode())


@pytest.mark.parametrize("decoder", [None, decoders.Metaspace()])
def test_tokens_as_sentencepiece_writes_them(tmp_path: Path, decoder: decoders.Decoder | None) -> None:
    texts = _saved(tmp_path, ["▁Hello", "<0xE4>", "<0x41>", "Ġé", "<0x4>", "a<0x41>"], decoder)
    assert [texts.text(id_) for id_ in range(6)] == [" Hello", UNFINISHED, "A", "Ġé", "<0x4>", "a<0x41>"]
    assert texts.bytes(1) == b"\xe4"


def test_what_is_remembered_is_bounded(nano: ModelTokenizer) -> None:
    texts = TokenTexts(nano)
    asked = [texts.text(id_) for id_ in range(2000)]
    assert texts._bytes.cache_info().currsize == 1024
    assert [texts.text(id_) for id_ in range(2000)] == asked


def test_the_tiny_vocabulary_is_what_it_is_taken_for(tmp_path: Path) -> None:
    tiny_tokenizer.save(tmp_path, template=False)
    vocabulary = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    texts = TokenTexts(ModelTokenizer(str(tmp_path)))
    assert texts.bytes(vocabulary["Ġ"]) == b" "
    assert texts.bytes(vocabulary["Ċ"]) == b"\n"
