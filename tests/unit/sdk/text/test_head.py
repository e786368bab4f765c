"""The head of a conversation, which is pinned: system messages and tools, with each other and alone."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kakeya.text.chat_template import ChatTemplate
from kakeya.text.chat_tokenizer import ChatTokenizer, PromptRefused
from kakeya.text.rendering.kept import Kept, key_of
from tests.unit.sdk import tiny_tokenizer

Made = Callable[[str], ChatTokenizer]
"""With this chat template."""

SYSTEM, USER = {"role": "system", "content": "Be brief"}, {"role": "user", "content": "hello"}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}},
    {"name": "plain"},
]
_TOOLS = "{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}"
IN_FRONT = _TOOLS + tiny_tokenizer.TEMPLATE
IN_SYSTEM = (
    "{% set system = messages[0].content if messages[0].role == 'system' else '' %}"
    "{% if system or tools %}<|im_start|>system\n{{ system }}" + _TOOLS + "<|im_end|>\n{% endif %}"
    "{% for m in messages if m.role != 'system' %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_BEFORE = "{% if loop.last %}" + _TOOLS + "{% endif %}"
BEFORE_LAST = tiny_tokenizer.TEMPLATE.replace("<|im_start|>{{", _BEFORE + "<|im_start|>{{")


@pytest.fixture
def made(template_dir: Path, tmp_path: Path) -> Made:
    def made(template: str) -> ChatTokenizer:
        folder = tmp_path / "made"
        shutil.copytree(template_dir, folder, dirs_exist_ok=True)
        (folder / "chat_template.jinja").write_text(template)
        return ChatTokenizer(str(folder))

    return made


def pinned(tokenizer: ChatTokenizer, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
    """The text of the tokens that are pinned, which begin the prompt."""
    prompt = tokenizer.prompt(messages, tools=tools)
    return tokenizer.decode(prompt[: tokenizer.num_pinned_tokens(messages, tools=tools)], special_tokens=True)


@pytest.mark.parametrize("template", [IN_FRONT, IN_SYSTEM])
@pytest.mark.parametrize("system", [[], [SYSTEM]])
def test_tools_are_pinned_also_without_a_system_message(made: Made, template: str, system: list[Any]) -> None:
    head = pinned(made(template), [*system, USER, {"role": "assistant", "content": "Hi"}, USER], TOOLS)
    assert '"weather"' in head
    assert '"plain"' in head
    assert "</tools>" in head
    assert ("Be brief" in head) == bool(system)
    assert "hello" not in head


def test_without_either_nothing_is(made: Made) -> None:
    tokenizer = made(IN_SYSTEM)
    assert tokenizer.num_pinned_tokens([USER]) == 0
    assert tokenizer.num_pinned_tokens([USER], tools=[]) == 0


def test_tools_that_stand_behind_what_was_said_are_not(made: Made) -> None:
    tokenizer = made(BEFORE_LAST)
    assert pinned(tokenizer, [USER], TOOLS).startswith("<tools>")
    assert tokenizer.num_pinned_tokens([USER, {"role": "assistant", "content": "Hi"}, USER], tools=TOOLS) == 0


def test_tools_that_the_template_leaves_out_are_not(made: Made) -> None:
    assert made(tiny_tokenizer.TEMPLATE).num_pinned_tokens([SYSTEM, USER], tools=TOOLS) == 0


def test_what_the_template_is_told_is_part_of_the_head(made: Made) -> None:
    tokenizer = made("{{ mood or '' }}" + tiny_tokenizer.TEMPLATE)
    plain, told = (tokenizer.num_pinned_tokens([SYSTEM, USER], variables={"mood": mood}) for mood in ("", "glad"))
    assert told == plain + len("glad")


@pytest.mark.parametrize(
    ("template", "system", "tools", "expected"),
    [
        (tiny_tokenizer.TEMPLATE, [], None, "<|im_start|>user\n"),
        (tiny_tokenizer.TEMPLATE, [], TOOLS, "<|im_start|>user\nA<|im_end|>\n"),
        (
            tiny_tokenizer.TEMPLATE,
            [SYSTEM, SYSTEM],
            None,
            "<|im_start|>system\nBe brief<|im_end|>\n" * 2 + "<|im_start|>user\n",
        ),
        (
            IN_SYSTEM,
            [SYSTEM],
            TOOLS[1:],
            '<|im_start|>system\nBe brief<tools>[{"name": "plain"}]</tools><|im_end|>\n<|im_start|>user\n',
        ),
        (
            "{{ strftime_now('%Y-%m-%d %H:%M:%S') }}" + tiny_tokenizer.TEMPLATE,
            [],
            None,
            "2000-01-01 00:00:00<|im_start|>user\n",
        ),
        (
            tiny_tokenizer.TEMPLATE + "{{ tools | tojson if tools }}",
            [],
            TOOLS[1:],
            '<|im_start|>user\nA<|im_end|>\n[{"name": "plain"}]',
        ),
    ],
)
def test_what_is_written_before_the_first_message(
    made: Made, template: str, system: list[Any], tools: list[Any] | None, expected: str
) -> None:
    tokenizer = made(template)
    for rest in ([USER], [USER, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "And?"}], []):
        assert tokenizer.head_text([*system, *rest], tools=tools) == expected


def test_its_time_stands_still(made: Made) -> None:
    tokenizer = made("{{ strftime_now('%d %b %Y') }}" + tiny_tokenizer.TEMPLATE)
    assert tokenizer.head_text([USER]).startswith("01 Jan 2000")
    assert not tokenizer.render([USER]).startswith("01 Jan 2000")


def test_variables_change_a_head_that_tells_them(made: Made) -> None:
    tokenizer = made("{{ mood or '' }}" + tiny_tokenizer.TEMPLATE + "{{ 'hm' if thinks and add_generation_prompt }}")
    plain = tokenizer.head_text([SYSTEM, USER])
    assert tokenizer.head_text([SYSTEM, USER], variables={"mood": "glad"}) == f"glad{plain}"
    assert tokenizer.head_text([SYSTEM, USER], variables={"thinks": True}) == plain


def test_a_head_that_the_template_refuses(made: Made) -> None:
    tokenizer = made("{{ raise_exception('alone') if messages[0].role == 'system' }}" + tiny_tokenizer.TEMPLATE)
    assert tokenizer.head_text([USER]) == "<|im_start|>user\n"
    with pytest.raises(PromptRefused, match="alone"):
        tokenizer.head_text([SYSTEM, USER])


def test_a_head_is_written_once(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = made(IN_SYSTEM)
    heads = [tokenizer.head_text([SYSTEM, USER], tools=tools) for tools in (None, TOOLS)]

    def renders(*_: Any, **__: Any) -> str:
        raise TypeError

    monkeypatch.setattr(ChatTemplate, "render", renders)
    assert [
        tokenizer.head_text([SYSTEM, {"role": "assistant", "content": "Hi"}], tools=tools) for tools in (None, TOOLS)
    ] == heads
    with pytest.raises(TypeError):
        tokenizer.head_text([SYSTEM | {"content": "Be long"}])


def test_texts_are_kept_up_to_a_length() -> None:
    kept: Kept[str] = Kept(10)

    def made_anew(name: str, length: int) -> bool:
        made: list[str] = []

        def make() -> str:
            made.append(name)
            return name * length

        assert kept.get(key_of(name), make) == name * length
        return bool(made)

    asked = [("a", 4), ("b", 4), ("a", 4), ("c", 4), ("a", 4), ("b", 4), ("a", 4), ("d", 11), ("d", 11), ("b", 4)]
    assert [made_anew(*each) for each in asked] == [1, 1, 0, 1, 0, 1, 0, 1, 1, 0]


def test_what_is_forgotten_makes_room() -> None:
    kept: Kept[str] = Kept(8)
    for name in (b"a", b"b"):
        kept.get(name, lambda: "text")
    for _ in range(2):
        kept.forget(b"a")
    assert kept.get(b"c", lambda: "more") == "more"
    assert [kept.get(name, lambda: "anew") for name in (b"b", b"a", b"c")] == ["text", "anew", "anew"]


def test_a_text_that_two_make_at_once_is_kept_once() -> None:
    kept: Kept[str] = Kept(4)
    assert kept.get(b"a", lambda: kept.get(b"a", lambda: "text")) == "text"
    assert kept.get(b"a", lambda: "another") == "text"
