"""What the files beside tokenizer.json say of tokens, as transformers reads it: newer files and older ones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer

from kakeya.text import tokenizer_loading
from kakeya.text.text_tokenizer import TextTokenizer
from tests.unit.sdk import tiny_tokenizer

Both = Callable[..., tuple[TextTokenizer, Any]]
"""A tokenizer with these files beside it, and transformers'."""

LONG = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}


@pytest.fixture
def both(tmp_path: Path) -> Both:
    def both(**files: dict[str, Any]) -> tuple[TextTokenizer, Any]:
        tiny_tokenizer.save(tmp_path, template=False, markers=False)
        for name, content in files.items():
            if name == "tokenizer_config":
                content = {"tokenizer_class": "PreTrainedTokenizerFast", **content}
            (tmp_path / f"{name}.json").write_text(json.dumps(content))
        return tokenizer_loading.load(str(tmp_path))[0], AutoTokenizer.from_pretrained(tmp_path)

    return both


def _same(tokenizer: TextTokenizer, library: Any, text: str = "a <x> b <y> c <z>\n<s>hé</s>") -> None:
    assert tokenizer.config.special_tokens == library.special_tokens_map
    assert tokenizer.eos_token_id == library.eos_token_id
    assert tokenizer.num_token_ids == len(library)
    for special_tokens in (True, False):
        ids = tokenizer.encode(text, special_tokens=special_tokens)
        assert ids == library.encode(text, add_special_tokens=special_tokens)
        for shown in (True, False):
            assert tokenizer.decode(ids, special_tokens=shown) == library.decode(ids, skip_special_tokens=not shown)


@pytest.mark.parametrize(
    "config",
    [
        {"bos_token": "<s>", "eos_token": "</s>", "pad_token": None, "add_bos_token": True, "add_eos_token": True},
        {"bos_token": {"__type": "AddedToken", "content": "<s>", **LONG}, "eos_token": "</s>", "unk_token": "<s>"},
        {"eos_token": "<x>", "extra_special_tokens": ["<y>", "<z>"]},
        {"eos_token": "<x>", "additional_special_tokens": ["<y>"]},
        {"eos_token": "<x>", "extra_special_tokens": {"image_token": "<y>"}, "audio_token": "<z>"},
        {"added_tokens_decoder": {"257": {"content": "<y>", **LONG}, "256": {"content": "<x>", **LONG}}},
        {"added_tokens_decoder": {"256": {"content": "<x>", **LONG}}, "eos_token": "<x>", "mask_token": "<y>"},
        {"added_tokens_decoder": {"256": {"content": "<x>", **LONG, "lstrip": True, "rstrip": True, "special": True}}},
        {"eos_token": "a"},
        {},
    ],
)
def test_tokens_of_newer_files(both: Both, config: dict[str, Any]) -> None:
    _same(*both(tokenizer_config=config))


def test_tokens_of_older_files(both: Both) -> None:
    _same(
        *both(
            tokenizer_config={"eos_token": "not this"},
            special_tokens_map={"eos_token": {"content": "</s>", **LONG}, "bos_token": "<s>", "mask_token": "<x>"},
            added_tokens={"<y>": 257, "<x>": 256, "<z>": 258},
        )
    )


def test_a_token_that_is_named_and_not_there_ends_nothing(tmp_path: Path) -> None:
    tiny_tokenizer.save(tmp_path, template=False, markers=False)
    assert tokenizer_loading.load(str(tmp_path))[0].eos_token_id is None


@pytest.mark.parametrize(("model", "cleans"), [("WordLevel", True), ("BPE", False)])
@pytest.mark.parametrize("corrupts", [True, False])
def test_blanks_are_taken_out_of_what_is_decoded(tmp_path: Path, model: str, cleans: bool, corrupts: bool) -> None:
    words = {word: id_ for id_, word in enumerate(("It", "'s", "n't", "here", ".", "?", "'", ",", "I", "'m", "!"))}
    kind = models.WordLevel(words, unk_token="?") if model == "WordLevel" else models.BPE(words, [])
    told: dict[str, Any] = {"clean_up_tokenization_spaces": True}
    told |= {"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": True} if corrupts else {}
    tiny_tokenizer.save_files(tmp_path, Tokenizer(kind), **told)
    tokenizer, library = tokenizer_loading.load(str(tmp_path))[0], AutoTokenizer.from_pretrained(tmp_path)
    ids = list(words.values()) * 2
    assert tokenizer.decode(ids) == library.decode(ids)
    assert ("here." in tokenizer.decode(ids)) == (cleans or corrupts)


def test_ids_beyond_the_number_of_tokens_are_counted(tmp_path: Path) -> None:
    tiny_tokenizer.save(tmp_path, template=False, markers=False)
    document = json.loads((tmp_path / "tokenizer.json").read_text())
    document["added_tokens"] = [{"id": 900, "content": "<x>", "special": True, **LONG}]
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    tokenizer, _ = tokenizer_loading.load(str(tmp_path))
    assert max(tokenizer.encode("<x>")) == tokenizer.num_token_ids - 1
