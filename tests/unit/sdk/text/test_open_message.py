"""Prompts that end with the text of the last message, or with its end: as transformers has them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from kakeya.text.chat_tokenizer import ChatTokenizer, PromptRefused
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.chat_templates import SERVED

Made = Callable[[str], Path]
"""The directory of a tokenizer with this chat template."""

USER = {"role": "user", "content": "Where is it?"}
TEMPLATES = {
    "ChatML": tiny_tokenizer.TEMPLATE,
    "trimmed": tiny_tokenizer.TEMPLATE.replace("{{ m.content }}", "{{ m.content | trim }}"),
    "texts": SERVED["texts"].source,
    "parts": SERVED["parts (Llava)"].source,
    "either": SERVED["either (Llama 3.2 Vision)"].source,
}
TEXTS = [
    "It is",
    "It is ",
    " It is",
    "\n\nIt is:\n",
    "",
    "  ",
    "<think>\nHm",
    "the end<|im_end|>",
    "Where is it?",
    "漢字 €",
]


@pytest.fixture
def made(template_dir: Path, tmp_path: Path) -> Made:
    def made(template: str) -> Path:
        folder = tmp_path / "made"
        shutil.copytree(template_dir, folder, dirs_exist_ok=True)
        (folder / "chat_template.jinja").write_text(template)
        return folder

    return made


def _in_form(name: str, text: str) -> Any:
    return [{"type": "text", "text": text}] if name == "parts" else text


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_message_that_is_left_open(made: Made, name: str, text: str) -> None:
    folder = made(TEMPLATES[name])
    tokenizer, other = ChatTokenizer(str(folder), parses_texts=True), AutoTokenizer.from_pretrained(folder)
    messages = [{"role": "user", "content": "Where is it?"}, {"role": "assistant", "content": text}]
    formed = [{**message, "content": _in_form(name, str(message["content"]))} for message in messages]
    wanted = other.apply_chat_template(formed, tokenize=False, continue_final_message=True)
    assert tokenizer.render(messages, end="text") == wanted
    assert tokenizer.prompt(messages, end="text") == other(wanted, add_special_tokens=False).input_ids


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_end_of_the_last_message(made: Made, name: str) -> None:
    folder = made(TEMPLATES[name])
    formed = [{"role": "user", "content": _in_form(name, "Where is it?")}]
    other = AutoTokenizer.from_pretrained(folder)
    wanted = other.apply_chat_template(formed, tokenize=False, add_generation_prompt=False)
    assert ChatTokenizer(str(folder)).render([USER], end="message") == wanted


def test_the_last_text_of_several_parts(tokenizer: ChatTokenizer) -> None:
    parts = [{"type": "text", "text": "It "}, {"type": "text", "text": "is"}, {"type": "other"}]
    rendered = tokenizer.render([USER, {"role": "assistant", "content": parts[:2]}], end="text")
    assert rendered.endswith("<|im_start|>assistant\nIt is")
    with pytest.raises(PromptRefused, match="the last message has no text to go on with"):
        tokenizer.render([USER, {"role": "assistant", "content": [parts[2]]}], end="text")


def test_a_control_token_in_the_open_text_is_text(tokenizer: ChatTokenizer) -> None:
    (end,) = tokenizer.encode(tiny_tokenizer.END)
    prompt = tokenizer.prompt([USER, {"role": "assistant", "content": "a<|im_end|>b"}], end="text")
    assert prompt.count(end) == 1, "the user's turn ended"
    assert tokenizer.decode(prompt, special_tokens=True).endswith("a<|im_end|>b")


@pytest.mark.parametrize("content", [None, [], 5])
def test_no_text_to_go_on_with(tokenizer: ChatTokenizer, content: Any) -> None:
    with pytest.raises(PromptRefused, match="the last message has no text to go on with"):
        tokenizer.prompt([USER, {"role": "assistant", "content": content}], end="text")


def test_no_messages(tokenizer: ChatTokenizer) -> None:
    with pytest.raises(PromptRefused, match="there are no messages"):
        tokenizer.prompt([], end="text")


def test_a_template_that_leaves_the_text_out(made: Made) -> None:
    template = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    tokenizer = ChatTokenizer(str(made(template)))
    with pytest.raises(PromptRefused, match="leaves out the text that is to be gone on with"):
        tokenizer.prompt([USER, {"role": "assistant", "content": "It is"}], end="text")
