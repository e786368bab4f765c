import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import AddedToken

from kakeya.text.chat_tokenizer import PromptTooLong, TemplateStopped, TokenizerError
from kakeya.text.rendering.budget import patience
from kakeya_http_shim.models.model_tokenizer import ModelTokenizer
from kakeya_http_shim.models.prompt import Prompt
from kakeya_shared import installed_models, plugins
from kakeya_shared.contract.tokenizer_digest import tokenizer_digest
from tests.unit.sdk import tiny_tokenizer

Thinking = Callable[[str], ModelTokenizer]
"""A model's tokenizer whose prompts end with this text."""

MESSAGES = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tiny_tokenizer.save(folder, template=True)
    (folder / "generation_config.json").write_text('{"eos_token_id": [9]}')
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> ModelTokenizer:
    return ModelTokenizer(str(folder))


@pytest.fixture
def thinking(folder: Path, tmp_path: Path) -> Thinking:
    def thinking(end: str) -> ModelTokenizer:
        shutil.copytree(folder, tmp_path / "thinking")
        (tmp_path / "thinking" / "chat_template.jinja").write_text(tiny_tokenizer.TEMPLATE + end)
        return ModelTokenizer(str(tmp_path / "thinking"))

    return thinking


def test_what_a_model_directory_says(tokenizer: ModelTokenizer, folder: Path) -> None:
    said = {name: value for name, value in vars(tokenizer).items() if name != "vocabulary" and name[0] != "_"}
    assert said == {
        "name": str(folder),
        "digest": tokenizer_digest(folder),
        "eos_token_ids": [256, 9],
        "num_token_ids": 258,
        "has_template": True,
        "leaves_out_system": False,
        "writes_tools": False,
        "takes_inner_system": True,
        "thinks": False,
        "parses_texts": False,
    }
    assert len(tokenizer.digest) == 64
    assert tokenizer.vocabulary.token(256) == tiny_tokenizer.END


def test_messages_become_a_prompt_whose_beginning_is_pinned(tokenizer: ModelTokenizer) -> None:
    prompt = tokenizer.chat_prompt(MESSAGES)
    system = tokenizer.text_prompt("<|im_start|>system\nBe brief<|im_end|>\n").token_ids
    rest = tokenizer.text_prompt("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n").token_ids
    assert prompt == Prompt(system + rest, num_pinned=len(system), is_chat=True)
    assert tokenizer.decode(prompt.token_ids) == "system\nBe brief\nuser\nhello\nassistant\n"


def test_a_text_is_a_prompt_as_it_is(tokenizer: ModelTokenizer) -> None:
    prompt = tokenizer.text_prompt("hello")
    assert (tokenizer.decode(prompt.token_ids), prompt.num_pinned, prompt.is_chat) == ("hello", 0, False)


def test_what_stands_behind_an_answer(tokenizer: ModelTokenizer) -> None:
    messages = [*MESSAGES, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "And?"}]
    whole = tokenizer.chat_prompt(messages).token_ids
    closed = tokenizer.behind(messages, 2, closed=True)
    assert closed is not None
    assert whole[-len(closed) - 1 :] == [tokenizer.end_of_turn_id, *closed]
    assert tokenizer.end_of_turn_id == 256
    assert tokenizer.behind(messages, 2, closed=False) == [256, *closed]
    repeated = tokenizer.behind(messages, 2, closed=True, repeats_answer=True)
    assert repeated is not None
    assert tokenizer.chat_prompt(MESSAGES).token_ids + repeated == whole
    with pytest.raises(PromptTooLong):
        tokenizer.behind(messages, 2, closed=True, max_tokens=len(closed) - 1)


def test_the_text_of_a_head(tokenizer: ModelTokenizer, thinking: Thinking) -> None:
    head = "<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\n"
    assert tokenizer.head_text(MESSAGES) == head
    assert tokenizer.templates == (tiny_tokenizer.TEMPLATE,)
    dated = thinking("{{ strftime_now('%Y') if tools }}")
    assert dated.head_text(MESSAGES, tools=[{"name": "x"}])[-4:] == "2000", "what it leaves out may be anywhere"


def test_what_the_template_fails_on_is_a_tokenizers_error(tokenizer: ModelTokenizer) -> None:
    with pytest.raises(TokenizerError, match="fails on messages of user"):
        tokenizer.chat_prompt([{"role": "user", "content": 1 << 20_000}])


def test_an_installed_model_goes_by_its_name() -> None:
    tokenizer = ModelTokenizer("kakeya-nano")
    assert tokenizer.name == str(installed_models.directory("kakeya-nano"))
    config = json.loads((installed_models.directory("kakeya-nano") / "generation_config.json").read_text())
    assert tokenizer.eos_token_ids == config["eos_token_id"]


def test_an_installed_model_that_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(model: str) -> str:
        raise plugins.PluginError(f"{model} is broken")

    monkeypatch.setattr(installed_models, "resolve", broken)
    with pytest.raises(TokenizerError, match="mine is broken"):
        ModelTokenizer("mine")


def test_a_digest_that_cannot_be_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_bytes = Path.read_bytes

    def reads_little(path: Path) -> bytes:
        if path.name == "tokenizer.json":
            raise PermissionError("not yours")
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", reads_little)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json cannot be read: not yours"):
        ModelTokenizer(str(folder))


@pytest.mark.parametrize(
    ("end", "thinks", "starts_in_thought"),
    [
        ("{% if add_generation_prompt %}<think>{% endif %}", True, True),
        ("{% if add_generation_prompt %}<think>\n{% endif %}", True, True),
        ("{% if add_generation_prompt %}<think>\n\n</think>\n\n{% endif %}", True, False),
        ("{# models may write <think> #}", True, False),
        ("{% if add_generation_prompt %}think>{% endif %}", False, False),
    ],
)
def test_a_prompt_may_open_a_thought(thinking: Thinking, end: str, thinks: bool, starts_in_thought: bool) -> None:
    tokenizer = thinking(end)
    assert tokenizer.thinks == thinks
    assert tokenizer.starts_in_thought(tokenizer.chat_prompt(MESSAGES).token_ids) == starts_in_thought


def test_a_tag_that_is_a_special_token_opens_a_thought(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    tiny_tokenizer.add(tmp_path, AddedToken("<think>", special=True))
    tokenizer = ModelTokenizer(str(tmp_path))
    assert tokenizer.starts_in_thought(tokenizer.text_prompt("x<think>").token_ids)
    assert not tokenizer.starts_in_thought([])


def test_how_answers_begin(tmp_path: Path) -> None:
    tiny_tokenizer.save(tmp_path, template=True)
    thinking = "{% if add_generation_prompt and thinks %}<think>{% endif %}{# and </think> #}"
    refusing = "{% if refuses %}{{ raise_exception('no') }}{% endif %}"
    (tmp_path / "chat_template.jinja").write_text(tiny_tokenizer.TEMPLATE + thinking + refusing)
    tokenizer = ModelTokenizer(str(tmp_path))
    assert tokenizer.begins(None) == tokenizer.begins({}) == "perhaps"
    assert tokenizer.begins({"thinks": True}) == "inside"
    assert tokenizer.begins({"refuses": True}) == "perhaps", "it cannot be told"
    for number in range(100):
        assert tokenizer.begins({"thinks": number}) == ("inside" if number else "perhaps")
    with pytest.raises(TemplateStopped), patience(0.0):
        tokenizer.begins({"thinks": "otherwise"})


def test_a_prompt_without_what_a_session_has_already(tokenizer: ModelTokenizer) -> None:
    prompt = tokenizer.chat_prompt(MESSAGES)
    assert prompt.after(3) == Prompt(prompt.token_ids[3:], prompt.num_pinned, is_chat=True)
