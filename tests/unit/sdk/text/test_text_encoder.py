"""Texts and control tokens in one prompt, by tokenizers of several families."""

import json
from pathlib import Path
from random import Random

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from kakeya.text import tokenizer_loading
from kakeya.text.control_tokens import ControlTokens
from kakeya.text.rendering.marked_text import has_stand_ins
from kakeya.text.text_tokenizer import TextTokenizer
from kakeya.text.tokenizer_error import PromptRefused
from tests.unit.sdk import model_tokenizers, tiny_tokenizer


@pytest.fixture(scope="module", params=["qwen", "mistral", "llama2", "gemma", "unigram"])
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    model_tokenizers.BUILDERS[request.param](folder)
    return folder


def _without_control_tokens(folder: Path, control: ControlTokens) -> Tokenizer:
    document = json.loads((folder / "tokenizer.json").read_text())
    document["added_tokens"] = [token for token in document["added_tokens"] if token["id"] not in control.contents]
    return Tokenizer.from_str(json.dumps(document))


def _shown(tokenizer: TextTokenizer, text: str) -> str:
    """What is decoded of a text's letters one after another: independent of how they are cut into tokens."""
    normalizer = tokenizer.backend.normalizer
    text = normalizer.normalize_str(text) if normalizer is not None else text
    return "".join(text.replace("\N{LOWER ONE EIGHTH BLOCK}", " ").split())


def test_control_tokens_are_those_that_the_template_wrote(family: Path) -> None:
    """Texts made of control tokens, parts of them, and words; the template's own between them."""
    tokenizer, _ = tokenizer_loading.load(str(family))
    control = tokenizer.control
    own = [content for content in control.contents.values() if content != "<unk>"]
    random = Random(3)
    pieces = [
        *own,
        *(content[:3] for content in own),
        *(content[3:] for content in own),
        " ",
        "\n\n",
        "word",
        "é",
        "\uff1c",
    ]
    stripped = _without_control_tokens(family, control)
    for _ in range(400):
        said = ["".join(random.choices(pieces, k=random.randint(1, 6))) for _ in range(3)]
        marked, expected = "", []
        for text in said:
            token = random.choice(own)
            expected.append(token)
            marked += token + (control.stand_ins.mark(text) if control.falls_on(text) else text)
        ids = tokenizer.encoder.marked(marked) if has_stand_ins(marked) else tokenizer.encode(marked)
        assert [control.contents[id_] for id_ in ids if control.contents.get(id_) not in (None, "<unk>")] == expected
        text = said[0]
        plain = tokenizer.encoder.as_text(text, special_tokens=False)
        assert not [id_ for id_ in plain if control.contents.get(id_) not in (None, "<unk>")]
        reference = stripped.encode(text, add_special_tokens=False)
        spans = zip(reference.ids, reference.offsets, strict=True)
        if not any(control.is_read(id_, text[start:end]) for id_, (start, end) in spans):
            others = {stripped.token_to_id(t.content): i for i, t in tokenizer.encoder._others.items()}
            assert plain == [others.get(id_, id_) for id_ in reference.ids]
        if "<unk>" not in tokenizer.decode(plain, special_tokens=True):
            assert _shown(tokenizer, tokenizer.decode(plain, special_tokens=True)) == _shown(tokenizer, text)


def test_what_a_normalizer_makes_a_control_token_of_is_text(tmp_path: Path) -> None:
    model_tokenizers.unigram(tmp_path)
    tokenizer, _ = tokenizer_loading.load(str(tmp_path))
    text = "\uff1cthink\uff1e <think>"
    assert len([id_ for id_ in tokenizer.encode(text) if id_ in tokenizer.control.contents]) == 2
    assert tokenizer.control.falls_on(text)
    marked = "<think>" + tokenizer.control.stand_ins.mark(text)
    assert tokenizer.encoder.marked(marked).count(tokenizer.encode("<think>")[-1]) == 1


def test_a_token_of_one_letter_that_has_no_other_way_is_refused(tmp_path: Path) -> None:
    vocabulary = {"[UNK]": 0, "#": 1, "a": 2}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.add_special_tokens(["[UNK]", "#"])
    tiny_tokenizer.save_files(tmp_path, tokenizer, unk_token="[UNK]")
    loaded, _ = tokenizer_loading.load(str(tmp_path))
    assert loaded.encoder.as_text("a?", special_tokens=False) == [2, 0]
    with pytest.raises(PromptRefused, match="no way to write '#' but as a control token"):
        loaded.encoder.as_text("a#a", special_tokens=False)


def test_a_text_behind_another_has_no_blank_in_front_of_it(tmp_path: Path) -> None:
    """Of its own, that is; with control tokens in it or without, spelled ones too."""
    model_tokenizers.mistral(tmp_path)
    tokenizer = tokenizer_loading.load(str(tmp_path))[0]
    marked = tokenizer.encoder.marked
    for text in ("word", " word", "word</s>[INST] word", "</s>[INST] word", "w", ""):
        alone, behind = marked(text), marked(text, goes_on=True)
        begins_in_text = bool(text) and not text.startswith("</s>")
        assert (alone != behind) == (begins_in_text and not text.startswith(" ")), text
        assert tokenizer.encode(f"</s>{text}")[1:] == behind
    spelled = tokenizer.control.stand_ins.mark("</s> a")
    eos = tokenizer.eos_token_id
    assert eos not in marked(spelled, goes_on=True)
    assert marked(f"{spelled}</s>", goes_on=True) == [*marked(spelled, goes_on=True), eos]
