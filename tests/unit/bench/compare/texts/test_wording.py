"""What chats say of drawn tokens, and what a chat template writes of that."""

from pathlib import Path

import pytest

from kakeya.text.chat_tokenizer import ChatTokenizer, TokenizerError
from kakeya_bench.compare.texts.wording import Wording, answered, said
from tests import word_tokenizer
from tests.unit.sdk import families
from tests.unit.sdk.scripted_runtime import VOCAB_SIZE


@pytest.fixture(scope="module")
def wording(words: Path) -> Wording:
    return Wording(str(words))


def test_a_message_is_as_long_as_its_tokens_with_what_is_written_around_it(wording: Wording) -> None:
    ids = list(range(20, 50))
    message = wording.message(ids)
    assert message == said(" ".join(f"<{token_id}>" for token_id in ids[:-6]))
    assert wording.num_new(message["content"], is_first=False) == len(ids)
    assert wording.num_new(message["content"], is_first=True) == len(ids) - 1, "no answer is to be ended"
    control = [int(token_id) for token_id in word_tokenizer.endless(VOCAB_SIZE)]
    assert wording.message([ids[0], *control, *ids[1:-5]]) == message, "what is no text is left out"
    assert wording.message([7, 8]) == said("<7>"), "some of it, always"


@pytest.mark.parametrize("family", ["qwen3", "chatml", "llama3", "smollm3", "mistral", "gemma3"])
def test_new_tokens_are_those_that_the_whole_grows_by(family: str, tmp_path: Path) -> None:
    families.save(tmp_path, families.ONES[family])
    wording, tokenizer = Wording(str(tmp_path)), ChatTokenizer(str(tmp_path))
    talk = [said("Hello"), answered("Hi there"), said("And?"), answered("Yes"), said("Well?")]
    behind = tokenizer.behind(talk, 3, closed=False)
    assert behind is not None
    assert wording.num_new("Well?", is_first=False) == len(behind)
    assert wording.num_new("Hello", is_first=True) == len(tokenizer.prompt(talk[:1]))


def test_a_template_that_leaves_out_what_was_answered(tmp_path: Path) -> None:
    word_tokenizer.save(tmp_path, 100)
    template = "{% for m in messages if m.role == 'user' %}<|im_start|>{{ m.content }}{% endfor %}"
    (tmp_path / "chat_template.jinja").write_text(template)
    with pytest.raises(TokenizerError, match="does not write what was answered"):
        Wording(str(tmp_path))
