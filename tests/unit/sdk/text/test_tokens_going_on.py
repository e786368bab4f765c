"""The tokens behind an answer are those of the whole, whatever way a tokenizer is built in."""

from pathlib import Path
from typing import Any

import pytest

from kakeya.text.chat_tokenizer import ChatTokenizer
from tests.unit.sdk import model_tokenizers

TEXTS = [text for text in model_tokenizers.texts(120, seed=7) if text.strip()]
TEMPLATES = {
    "words behind the end": "{% for m in messages %}{{ m.role }}: {{ m.content }}END{% endfor %}assistant:",
    "a blank behind the end": "{% for m in messages %}{{ m.role }}: {{ m.content }}END {% endfor %} assistant:",
    "blanks around the end": "{% for m in messages %}{{ m.role }}:\n{{ m.content }}\n END\n{% endfor %}assistant:\n",
    "the end and another": "{% for m in messages %}{{ m.content }}ENDEND{% endfor %}",
}


@pytest.fixture(scope="module", params=model_tokenizers.BUILDERS)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    model_tokenizers.BUILDERS[request.param](folder)
    return folder


@pytest.mark.parametrize("name", TEMPLATES)
def test_they_are_those_of_the_whole(family: Path, name: str) -> None:
    plain = ChatTokenizer(str(family))
    (end, *_) = plain.eos_token_ids
    (family / "chat_template.jinja").write_text(TEMPLATES[name].replace("END", plain.vocabulary.token(end)))
    tokenizer = ChatTokenizer(str(family))
    assert tokenizer.end_of_turn_id == end
    for first, second, third in zip(TEXTS, TEXTS[1:], TEXTS[2:], strict=False):
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": first},
            {"role": "assistant", "content": second},
            {"role": "user", "content": third},
        ]
        whole = tokenizer.prompt(messages)
        closed, lacking = (tokenizer.behind(messages, 1, closed=closed) for closed in (True, False))
        assert closed is not None
        assert lacking is not None
        place = len(whole) - len(closed)
        assert whole[place:] == closed
        assert whole[place - 1] == end
        assert lacking[-len(closed) - 1 :] == [end, *closed]
        if not name.startswith("blanks"):
            assert lacking == [end, *closed]
        assert tokenizer.behind_either(messages, 1) == (lacking, len(lacking) - len(closed))
        repeated = tokenizer.behind(messages, 1, closed=True, repeats_answer=True)
        assert repeated is not None
        assert repeated[-len(lacking) :] == lacking or name.startswith("blanks")


@pytest.mark.parametrize(
    "template",
    [
        pytest.param("{% for m in messages %}{{ m.content }}{% endfor %}", id="no end"),
        pytest.param("{% for m in messages | reverse %}{{ m.content }}END{% endfor %}", id="not one behind another"),
    ],
)
def test_where_the_two_are_not_the_same_neither_is_known(family: Path, template: str) -> None:
    plain = ChatTokenizer(str(family))
    (end, *_) = plain.eos_token_ids
    (family / "chat_template.jinja").write_text(template.replace("END", plain.vocabulary.token(end)))
    messages = [
        {"role": role, "content": text} for role, text in zip(("user", "assistant", "user"), TEXTS, strict=False)
    ]
    assert ChatTokenizer(str(family)).behind_either(messages, 1) is None
