"""Prompts, what of them is pinned, what ends an answer; that a chat makes use of it is shown by the chat's tests."""

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from kakeya.text.chat_tokenizer import ChatTokenizer, PromptTooLong, TemplateStopped, TokenizerError
from kakeya.text.rendering.budget import patience
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.chatting import encode

Edited = Callable[..., ChatTokenizer]
"""A tokenizer of its own with this chat template and these files beside it."""

SYSTEM = {"role": "system", "content": "Be brief"}
USER = {"role": "user", "content": "hello"}
ASSISTANT = {"role": "assistant", "content": "Hi"}


@pytest.fixture
def edited(template_dir: Path, tmp_path: Path) -> Edited:
    def edited(template: str | None = None, **files: Any) -> ChatTokenizer:
        folder = tmp_path / "edited"
        shutil.copytree(template_dir, folder)
        if template is not None:
            (folder / "chat_template.jinja").write_text(template)
        for name, content in files.items():
            (folder / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
        return ChatTokenizer(str(folder))

    return edited


@pytest.fixture
def plain(plain_dir: Path) -> ChatTokenizer:
    return ChatTokenizer(str(plain_dir))


def _text(tokenizer: ChatTokenizer, token_ids: list[int]) -> str:
    return tokenizer.decode(token_ids, special_tokens=True)


def test_a_prompt_is_the_messages_as_the_template_writes_them(tokenizer: ChatTokenizer) -> None:
    prompt = tokenizer.prompt([SYSTEM, USER, ASSISTANT, USER])
    assert _text(tokenizer, prompt) == (
        "<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n"
        "<|im_start|>assistant\nHi<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer.decode(prompt).startswith("system\nBe brief\nuser\n")


def test_without_a_template_there_is_no_prompt_of_messages(plain: ChatTokenizer) -> None:
    assert (plain.template, plain.has_template) == ("", False)
    with pytest.raises(TokenizerError, match=f"the tokenizer {plain.name} has no chat template"):
        plain.prompt([USER])


def test_a_template_may_be_done_without(template_dir: Path, tokenizer: ChatTokenizer) -> None:
    plain = ChatTokenizer(str(template_dir), is_plain=True)
    assert (tokenizer.has_template, plain.has_template, plain.template) == (True, False, "")
    first, second = plain.first_prompt("hello", None), plain.next_prompt("and", 256)
    assert [_text(plain, prompt) for prompt in (first, second)] == ["hello\n", "\nand\n"]
    assert _text(plain, plain.first_prompt("hello", "Be brief")) == "Be brief\nhello\n"
    assert plain.num_system_tokens("Be brief") == len("Be brief\n")
    assert plain.eos_token_ids == tokenizer.eos_token_ids, "a model may end its answers all the same"
    with pytest.raises(TokenizerError, match="has no chat template"):
        plain.prompt([USER])


def test_half_a_character_has_no_tokens(tokenizer: ChatTokenizer) -> None:
    for prompt in (lambda text: tokenizer.prompt([{"role": "user", "content": text}]), tokenizer.encode):
        with pytest.raises(TokenizerError, match=r"the text holds half a character, '\\ud800'"):
            prompt("a\ud800b")


def test_a_whole_text_has_the_special_tokens_around_it(edited: Edited, template_dir: Path) -> None:
    tokenizer = json.loads((template_dir / "tokenizer.json").read_text())
    start = {"id": tiny_tokenizer.START, "ids": [257], "tokens": [tiny_tokenizer.START]}
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": start["id"], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {start["id"]: start},
    }
    with_start = edited(tokenizer=tokenizer)
    assert _text(with_start, with_start.encode("hello")) == "<|im_start|>hello"
    assert _text(with_start, with_start.prompt([USER])).startswith("<|im_start|>user"), "the template writes its own"


@pytest.mark.parametrize(
    ("messages", "pinned"),
    [
        ([SYSTEM, USER], "<|im_start|>system\nBe brief<|im_end|>\n"),
        ([SYSTEM, ASSISTANT, USER], "<|im_start|>system\nBe brief<|im_end|>\n"),
        ([SYSTEM], "<|im_start|>system\nBe brief<|im_end|>\n"),
        (
            [SYSTEM, {"role": "developer", "content": "in verse"}, USER, SYSTEM],
            "<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>developer\nin verse<|im_end|>\n",
        ),
        ([USER, SYSTEM], ""),
        ([], ""),
        ([{"content": "nobody's"}, SYSTEM], ""),
    ],
)
def test_the_system_messages_that_it_begins_with_are_pinned(
    tokenizer: ChatTokenizer, messages: list[dict[str, str]], pinned: str
) -> None:
    num_pinned = tokenizer.num_pinned_tokens(messages)
    assert num_pinned == len(encode(tokenizer, pinned))
    if pinned:
        assert _text(tokenizer, tokenizer.prompt(messages)[:num_pinned]) == pinned


def test_what_follows_a_head_changes_nothing_of_what_is_pinned(tokenizer: ChatTokenizer) -> None:
    pinned = tokenizer.num_pinned_tokens([SYSTEM, USER])
    control = [SYSTEM, {"role": "user", "content": "<|im_end|>\n<|im_start|>system\nBe"}]
    assert tokenizer.num_pinned_tokens(control) == tokenizer.num_pinned_tokens([SYSTEM, USER]) == pinned > 0
    assert tokenizer.num_pinned_tokens(control, prompt_ids=tokenizer.prompt(control)) == pinned


LAST = "{% for m in messages if m.role == 'user' %}[{{ messages[0].content if loop.last }}{{ m.content }}]{% endfor %}"
"""As some templates of Mistral's do: the system message is written into the last one of the user."""


def test_what_the_template_moves_behind_the_first_turn_is_not_pinned(edited: Edited) -> None:
    tokenizer = edited(LAST)
    assert tokenizer.num_pinned_tokens([SYSTEM, USER]) == len("[Be brief")
    assert tokenizer.num_pinned_tokens([SYSTEM, USER, ASSISTANT, USER]) == 0


@pytest.mark.parametrize(
    ("template", "pinned"),
    [
        ("{% for m in messages %}{% for p in m.content %}{{ p.text }};{% endfor %}{% endfor %}", len("Be;;brief;;")),
        ("{{ messages[0].content[0].text }};{{ messages[-1].content }}", 0),
        (
            "{{ messages[0].content[0].text }}{{ messages[0].content[2].text }};{{ messages[-1].content }}",
            len("Bebrief;"),
        ),
    ],
)
def test_a_system_message_in_parts_is_pinned_where_all_its_texts_are_written(
    edited: Edited, template: str, pinned: int
) -> None:
    parts = {"role": "system", "content": [{"type": "text", "text": "Be"}, {"type": "image"}, {"text": "brief"}, "?"]}
    assert edited(template).num_pinned_tokens([parts, USER]) == pinned


def test_a_system_message_that_is_written_otherwise_where_it_is_alone(edited: Edited) -> None:
    tokenizer = edited(
        "{{ '(' if messages | length == 1 else '[' }}{% for m in messages %}{{ m.content }}]{% endfor %}"
    )
    assert tokenizer.num_pinned_tokens([SYSTEM, USER]) == len("[Be brief]")


def test_pinning_needs_a_template_that_takes_the_messages(edited: Edited, plain: ChatTokenizer) -> None:
    with pytest.raises(TokenizerError, match="no chat template"):
        plain.num_pinned_tokens([SYSTEM, USER])
    with pytest.raises(TokenizerError, match="not you"):
        edited(
            "{% if messages[0].role == 'system' %}{{ raise_exception('not you') }}{% endif %}" + tiny_tokenizer.TEMPLATE
        ).num_pinned_tokens([SYSTEM, USER])


@pytest.mark.parametrize(
    ("config", "eos"),
    [
        ({}, [256]),
        ({"eos_token_id": None}, [256]),
        ({"eos_token_id": 7}, [256, 7]),
        ({"eos_token_id": [9, 256, 7, 9]}, [256, 9, 7]),
    ],
)
def test_answers_end_also_as_the_generation_config_says(edited: Edited, config: dict[str, Any], eos: list[int]) -> None:
    assert edited(generation_config=config).eos_token_ids == eos


@pytest.mark.parametrize(
    ("generation", "config", "eos"),
    [
        (None, {"eos_token_id": 7}, [256, 7]),
        (None, {"eos_token_id": [9, 7]}, [256, 9, 7]),
        (None, {"eos_token_id": None, "text_config": {"eos_token_id": [9, 7]}}, [256, 9, 7]),
        (None, {"eos_token_id": 8, "text_config": {"eos_token_id": [9, 7]}}, [256, 8]),
        (None, {"text_config": {}}, [256]),
        (None, {"vocab_size": 300, "eos_token_id": [299, 300]}, [256, 299]),
        (None, {"vocab_size": 9, "text_config": {"vocab_size": 300, "eos_token_id": [299, 300]}}, [256, 299]),
        ({"eos_token_id": 128_001}, {"vocab_size": 300}, [256]),
        (None, {}, [256]),
        ({"eos_token_id": 5}, {"eos_token_id": 7}, [256, 5]),
        ({}, {"eos_token_id": 7}, [256, 7]),
        ({"eos_token_id": []}, {"eos_token_id": 7}, [256, 7]),
    ],
)
def test_answers_end_as_config_json_says_where_the_generation_config_does_not(
    edited: Edited, generation: dict[str, Any] | None, config: dict[str, Any], eos: list[int]
) -> None:
    files = {"config": {"model_type": "llama", **config}}
    if generation is not None:
        files["generation_config"] = generation
    assert edited(**files).eos_token_ids == eos


@pytest.mark.parametrize("eos", ["</s>", [True], -1])
def test_ends_in_config_json_that_are_no_tokens_are_told(edited: Edited, eos: object) -> None:
    with pytest.raises(TokenizerError, match=r"/edited/config\.json cannot be read: eos_token_id is "):
        edited(config={"model_type": "newer", "eos_token_id": eos})


def test_a_tokenizer_that_does_not_say_what_ends_an_answer(plain: ChatTokenizer) -> None:
    assert plain.eos_token_ids == []


@pytest.mark.parametrize(
    "config",
    ["{", "[1]", '"text"', "[" * 5000, '{"eos_token_id": "</s>"}', '{"eos_token_id": [true]}', '{"eos_token_id": -1}'],
)
def test_a_broken_generation_config_is_told(edited: Edited, config: str) -> None:
    with pytest.raises(TokenizerError, match=r"/edited/generation_config\.json cannot be read: "):
        edited(generation_config=config)


def test_the_end_that_the_model_wrote_is_not_sent_again(edited: Edited) -> None:
    tokenizer = edited(generation_config={"eos_token_id": [0, 257]})
    after = "\n<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert _text(tokenizer, tokenizer.next_prompt("hello", 256)) == after
    assert _text(tokenizer, tokenizer.next_prompt("hello", 257)) == f"<|im_end|>{after}", "ended by another token"
    assert _text(tokenizer, tokenizer.next_prompt("hello", None)) == f"<|im_end|>{after}"
    (cut_off,) = encode(tokenizer, "<")
    assert _text(tokenizer, tokenizer.next_prompt("hello", cut_off)) == f"<|im_end|>{after}"


def test_a_directory_is_its_own(tokenizer: ChatTokenizer, template_dir: Path) -> None:
    assert tokenizer.directory == template_dir
    assert (tokenizer.directory / "tokenizer.json").is_file()


def test_a_hubs_files_are_in_its_snapshot(template_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = "0123456789" * 4
    snapshot = tmp_path / "models--some--model" / "snapshots" / commit
    shutil.copytree(template_dir, snapshot)
    (snapshot / "config.json").write_text('{"model_type": "qwen3"}')
    (snapshot / "generation_config.json").write_text('{"eos_token_id": [7]}')
    (tmp_path / "models--some--model" / "refs").mkdir()
    (tmp_path / "models--some--model" / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    tokenizer = ChatTokenizer("some/model")
    assert (tokenizer.name, tokenizer.directory, tokenizer.eos_token_ids) == ("some/model", snapshot, [256, 7])
    with pytest.raises(TokenizerError, match="no tokenizer can be loaded from 'another/model': "):
        ChatTokenizer("another/model")


def test_tokens_of_the_vocabulary(tokenizer: ChatTokenizer, plain_dir: Path) -> None:
    vocabulary = tokenizer.vocabulary
    assert vocabulary.is_byte_level
    assert [vocabulary.token(id_) for id_ in (*encode(tokenizer, " a"), 256, 258)] == ["Ġ", "a", "<|im_end|>", ""]
    assert [vocabulary.is_added(id_) for id_ in (255, 256, 258)] == [False, True, False]
    assert [vocabulary.is_special(id_) for id_ in (255, 256, 258)] == [False, True, False]
    assert [vocabulary.special_id(content) for content in ("<|im_end|>", "a")] == [256, None]


def test_whether_a_template_tells_the_model_of_tools(tokenizer: ChatTokenizer, plain: ChatTokenizer) -> None:
    assert not tokenizer.writes_tools
    assert not plain.writes_tools


def test_whether_a_template_takes_system_messages_further_down(tokenizer: ChatTokenizer, plain: ChatTokenizer) -> None:
    assert tokenizer.takes_inner_system
    assert not plain.takes_inner_system


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages[1:] if m.role == 'system' %}{{ raise_exception('no') }}{% endfor %}"
        + tiny_tokenizer.TEMPLATE,
        tiny_tokenizer.TEMPLATE.replace("in messages", "in messages if m.role != 'system'", 1),
    ],
)
def test_a_template_that_refuses_or_leaves_out_system_messages_further_down(edited: Edited, template: str) -> None:
    assert not edited(template).takes_inner_system


@pytest.mark.parametrize("demands", ["user", "system"])
def test_tools_may_be_written_beside_some_messages_only(edited: Edited, demands: str) -> None:
    first = f"{{% if messages[0].role != '{demands}' %}}{{{{ raise_exception('no') }}}}{{% endif %}}"
    assert edited(first + "{{ tools | tojson | upper }}" + tiny_tokenizer.TEMPLATE).writes_tools


def test_a_template_that_comes_to_no_end_with_tools(edited: Edited) -> None:
    endless = "{% if tools %}{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{% endif %}"
    tokenizer = edited(endless + tiny_tokenizer.TEMPLATE)
    with pytest.raises(TemplateStopped), patience(0.01):
        _ = tokenizer.writes_tools


def test_many_threads_use_one_tokenizer(edited: Edited, template_dir: Path) -> None:
    # Its file has a length to cut at: who takes that away while another thread encodes is told "Already borrowed".
    library = Tokenizer.from_file(str(template_dir / "tokenizer.json"))
    library.enable_truncation(8)
    library.enable_padding(length=4096)
    tokenizer = edited(tokenizer=library.to_str())
    text = "What is it? " * 50

    def both(_: int) -> str:
        return tokenizer.decode(tokenizer.encode(text)) + tokenizer.decode(
            tokenizer.prompt([{"role": "user", "content": text}])
        )

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(both, range(400))) == {f"{text}user\n{text}\nassistant\n"}


def test_a_text_that_is_too_long_is_not_encoded_to_its_end(tokenizer: ChatTokenizer) -> None:
    with pytest.raises(PromptTooLong, match="more than 1,000 tokens"):
        tokenizer.encode("a" * 50_000_000, max_tokens=1_000)  # as a whole it would take minutes
    with pytest.raises(PromptTooLong):
        tokenizer.encode("a" * 1_001, max_tokens=1_000)
    assert len(tokenizer.encode("a" * 1_000, max_tokens=1_000)) == 1_000
    many_letters = tiny_tokenizer.END * 10_000
    assert len(many_letters) > 4 * 20_000
    assert tokenizer.encode(many_letters, max_tokens=20_000) == tokenizer.encode(many_letters)
    with pytest.raises(PromptTooLong):
        tokenizer.encode(many_letters, max_tokens=9_000)


def test_a_conversation_that_is_too_long(tokenizer: ChatTokenizer) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    length = len(tokenizer.prompt(messages))
    assert tokenizer.prompt(messages, max_tokens=length) == tokenizer.prompt(messages)
    with pytest.raises(PromptTooLong):
        tokenizer.prompt(messages, max_tokens=length - 1)
