"""Whatever form a chat template takes, it is given: each prompt is the one of transformers, or is refused by name."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from kakeya.text.chat_tokenizer import ChatTokenizer, PromptRefused, TokenizerError
from tests.unit.sdk import families
from tests.unit.sdk.chat_templates import ADDS_UP, REFUSED, SERVED, TOOLS, Form, Template
from tests.unit.sdk.chatting import encode

WithTemplate = Callable[[str], ChatTokenizer]

ARGUMENTS = '{"city": "Zürich", "days": [1, 2.5], "at": {"lake": true}}'
CALL: dict[str, Any] = {"id": "abcdef123", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}
PARTS = [{"type": "text", "text": "One"}, {"type": "text", "text": "Two"}]
SYSTEM: dict[str, Any] = {"role": "system", "content": "Be brief"}
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "Hello there"},
    {"role": "assistant", "content": "Hi"},
    {"role": "user", "content": PARTS},
    {"role": "assistant", "content": PARTS},
    {"role": "user", "content": "And now?"},
]


@pytest.fixture
def with_template(template_dir: Path, tmp_path: Path) -> WithTemplate:
    def with_template(template: str) -> ChatTokenizer:
        for file in template_dir.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        (tmp_path / "chat_template.jinja").write_text(template)
        return ChatTokenizer(str(tmp_path))

    return with_template


def _transformers(tokenizer: ChatTokenizer, messages: list[dict[str, Any]]) -> list[int]:
    library = AutoTokenizer.from_pretrained(tokenizer.directory)
    ids: list[int] = library.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    return ids


def _in_form(template: Template, message: dict[str, Any]) -> dict[str, Any]:
    form: Form = getattr(template, message["role"])
    content = message["content"]
    texts = [content] if isinstance(content, str) else [part["text"] for part in content]
    if form == "text" or (template.takes_either and isinstance(content, str)):
        return message | {"content": "".join(texts)}
    given = texts if form == "parts" else ["".join(texts)]
    return message | {"content": [{"type": "text", "text": text} for text in given]}


@pytest.mark.parametrize("name", SERVED)
def test_messages_are_rendered_as_transformers_does_in_the_templates_form(
    name: str, with_template: WithTemplate
) -> None:
    template = SERVED[name]
    tokenizer = with_template(template.source)
    for system in ([SYSTEM], [SYSTEM | {"content": PARTS}]):
        messages = [*system, *HISTORY]
        expected = _transformers(tokenizer, [_in_form(template, message) for message in messages])
        assert tokenizer.prompt(messages) == expected
        assert "AND NOW?" in tokenizer.decode(expected).upper(), "transformers is given the right form here, too"
    assert tokenizer.leaves_out_system == (name in ("no system", "the last message only"))


@pytest.mark.parametrize("name", [name for name, template in SERVED.items() if "Mistral" not in name])
def test_what_a_tool_answers_is_in_the_prompt(name: str, with_template: WithTemplate) -> None:
    template = SERVED[name]
    tokenizer = with_template(template.source)
    result = {"role": "tool", "content": PARTS, "tool_call_id": "abcdef123"}
    messages: list[dict[str, Any]] = [
        SYSTEM,
        HISTORY[0],
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        result,
    ]
    written = tokenizer.decode(tokenizer.prompt(messages)).upper()
    assert "ONE" in written
    assert "TWO" in written


@pytest.mark.parametrize("name", TOOLS)
def test_calls_are_rendered_as_transformers_does_with_objects(name: str, with_template: WithTemplate) -> None:
    tokenizer = with_template(TOOLS[name])
    content = [{"type": "text", "text": "Hm"}] if "parts" in name else "Hm"

    def history(arguments: Any, content: Any = content) -> list[dict[str, Any]]:
        call = CALL | {"function": {"name": "weather", "arguments": arguments}}
        asked = {"role": "assistant", "content": content, "tool_calls": [call, call]}
        return [{"role": "user", "content": content}, asked, {"role": "tool", "content": content}]

    expected = _transformers(tokenizer, history(json.loads(ARGUMENTS)))
    assert tokenizer.prompt(history(ARGUMENTS, "Hm")) == expected
    assert tokenizer.prompt(history(json.loads(ARGUMENTS), "Hm")) == expected


def test_a_template_that_adds_arguments_to_a_text_is_given_the_text(with_template: WithTemplate) -> None:
    tokenizer = with_template(ADDS_UP)
    history: list[dict[str, Any]] = [HISTORY[0], {"role": "assistant", "content": "", "tool_calls": [CALL]}]
    assert tokenizer.prompt(history) == _transformers(tokenizer, history)


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "look!",
        "[1]",
        '"text"',
        "5",
        "null",
        '{"a": 1',
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": 1, "a": 2}',
        '{"a": {"b": 1, "b": 2}}',
        '{"a": ' + "1" * 5000 + "}",
        '{"a": ' + "[" * 100_000,
        '{"a": ' + "[" * 200 + "]" * 200 + "}",
        None,
        5,
        ["a"],
    ],
)
def test_arguments_that_are_no_object_or_would_come_out_otherwise_are_left_alone(
    with_template: WithTemplate, arguments: Any
) -> None:
    tokenizer = with_template(TOOLS["tojson (Llama 3.1)"])
    history: list[dict[str, Any]] = [
        {"role": "assistant", "content": "", "tool_calls": [{"name": "look", "arguments": arguments}]}
    ]
    assert tokenizer.prompt(history) == _transformers(tokenizer, history)


@pytest.mark.parametrize(
    "message",
    [
        {"tool_calls": [{"name": "look", "arguments": '{"a": 1}'}]},
        {"tool_calls": [{"function": {"name": "look", "arguments": '{"a": 1}'}}, "?", {"function": "?"}]},
        {"function_call": {"name": "look", "arguments": '{"a": 1}'}},
    ],
)
def test_calls_are_written_in_several_ways(with_template: WithTemplate, message: dict[str, Any]) -> None:
    tokenizer = with_template(SERVED["whole messages, as JSON"].source)
    given: list[dict[str, Any]] = [{"role": "user", "content": "-"}, {"role": "assistant", "content": "", **message}]
    decoded = json.loads(json.dumps(given).replace(r'"{\"a\": 1}"', '{"a": 1}'))
    assert tokenizer.prompt(given) == _transformers(tokenizer, decoded)
    assert given[1]["content"] == "", "what was given is left alone"


def _called(*ids: Any) -> list[dict[str, Any]]:
    calls = [CALL | {"id": each} for each in ids]
    results = [{"role": "tool", "content": "5", "tool_call_id": each} for each in ids]
    return [HISTORY[0], {"role": "assistant", "content": "", "tool_calls": calls}, *results]


def test_ids_that_a_template_refuses_become_nine_letters_and_digits(with_template: WithTemplate) -> None:
    tokenizer = with_template(families.ONES["mistral"])
    written = tokenizer.decode(tokenizer.prompt(_called("call_0123456789", "abcdef123", "call_\ud800")))
    first, second, third = re.findall(r'"id": "(\w{9})"', written)
    assert re.findall(r'"call_id": "(\w{9})"', written) == [first, second, third]
    assert second == "abcdef123"
    assert len({first, second, third}) == 3
    with pytest.raises(TokenizerError, match="no len"):
        tokenizer.prompt(_called(5))


def test_ids_that_a_template_takes_stay_as_they_are(with_template: WithTemplate) -> None:
    tokenizer = with_template(SERVED["whole messages, as JSON"].source)
    assert "call_0123456789" in tokenizer.decode(tokenizer.prompt(_called("call_0123456789")))


@pytest.mark.parametrize(("template", "reason"), REFUSED.items())
def test_what_a_template_does_not_write_is_found_at_load(
    with_template: WithTemplate, template: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(TokenizerError) as refusal:
        with_template(template)
    said = str(refusal.value)
    assert said.startswith(f"the chat template of {tmp_path} writes a user's message neither given as a text nor as")
    assert reason in said
    assert len(said.splitlines()) == 1
    plain = ChatTokenizer(str(tmp_path), is_plain=True)
    assert plain.first_prompt("hello", None) == encode(plain, "hello\n"), "needs no good template"


IMAGE = {"type": "image"}


def test_what_is_no_text_is_the_templates_own_affair(with_template: WithTemplate) -> None:
    tokenizer = with_template(
        "{% for m in messages %}{% for p in m.content %}{{ p.text or '<image>' }}{% endfor %}{% endfor %}"
    )
    mixed: list[dict[str, Any]] = [{"role": "user", "content": [PARTS[0], IMAGE, PARTS[1]]}]
    assert tokenizer.decode(tokenizer.prompt(mixed)) == "One<image>Two"
    assert tokenizer.prompt([{"role": "user", "content": []}]) == []


def test_a_list_without_parts_is_an_empty_text(with_template: WithTemplate) -> None:
    silent: list[dict[str, Any]] = [{"role": "user", "content": []}]
    for name in ("texts", "texts, added up", "either (Llama 3.2 Vision)"):
        tokenizer = with_template(SERVED[name].source)
        assert tokenizer.decode(tokenizer.prompt(silent)) == "user: ;\nassistant: "


@pytest.mark.parametrize(
    "name", ["texts", "texts, trimmed and in capitals", "parts (Llava)", "either (Llama 3.2 Vision)", "no system"]
)
def test_a_conversation_goes_on_with_what_the_template_writes_after_the_answer(
    with_template: WithTemplate, name: str
) -> None:
    tokenizer = with_template(SERVED[name].source)
    whole = tokenizer.decode(tokenizer.prompt([*HISTORY[:2], {"role": "user", "content": "More"}]))
    following = tokenizer.decode(tokenizer.next_prompt("More", None))
    assert "MORE" in following.upper()
    assert whole.upper().endswith(f"HI{following.upper()}")


@pytest.mark.parametrize(
    "template",
    [
        SERVED["the last message only"].source,
        "{% for m in messages if m.role == 'user' %}{{ m.content }};{% endfor %}",
        "{{ messages[0].content }}{% for m in messages if m.role == 'assistant' %}{{ m.content }};{% endfor %}",
    ],
)
def test_a_template_that_leaves_out_what_was_said_before_cannot_go_on(
    with_template: WithTemplate, template: str
) -> None:
    tokenizer = with_template(template)
    assert tokenizer.decode(tokenizer.first_prompt("hello", None)).startswith("hello")
    with pytest.raises(TokenizerError, match=r"leaves out what was said before: a conversation cannot go on"):
        tokenizer.next_prompt("hello", None)


@pytest.mark.parametrize("name", ["parts (Llava)", "parts, in capitals", "parts of the system, texts of all others"])
def test_a_system_prompt_in_parts_is_pinned(with_template: WithTemplate, name: str) -> None:
    tokenizer = with_template(SERVED[name].source)
    num_pinned = tokenizer.num_system_tokens("Be brief")
    assert tokenizer.decode(tokenizer.first_prompt("hi", "Be brief")[:num_pinned]).upper() == "SYSTEM: BE BRIEF ;\n"


@pytest.mark.parametrize(
    ("condition", "error", "reason"),
    [
        ("raise_exception('no, thanks')", PromptRefused, "refuses messages of user, assistant: no, thanks"),
        ("raise_exception('no\nthanks')", PromptRefused, "no thanks"),
        ("raise_exception()", TokenizerError, "TypeError: "),
        ("1 + ''", TokenizerError, "fails on messages of user, assistant: TypeError: "),
        ("messages[0].calls[0].name", TokenizerError, "UndefinedError: 'dict object' has no attribute 'calls'"),
        ("1 // 0", TokenizerError, "ZeroDivisionError: "),
        ("messages[0].content.index('z')", TokenizerError, "ValueError: substring not found"),
        ("''.__class__.__mro__", TokenizerError, "SecurityError: "),
        ("again()", TokenizerError, "RecursionError: "),
        ("range(99999999)", TokenizerError, "OverflowError: "),
        ("messages | nothing", TokenizerError, "TemplateRuntimeError: No filter named 'nothing'"),
    ],
)
def test_only_what_a_template_raises_on_purpose_is_a_refusal(
    with_template: WithTemplate, condition: str, error: type[TokenizerError], reason: str
) -> None:
    tokenizer = with_template(
        "{% macro again() %}{{ again() }}{% endmacro %}"
        "{% if messages | length == 4 %}{{ " + condition + " }}{% endif %}"
        "{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    assert tokenizer.prompt(HISTORY[:1])
    with pytest.raises(TokenizerError) as raised:
        tokenizer.prompt(HISTORY[:4])
    assert type(raised.value) is error
    assert reason in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_no_messages_are_refused(tokenizer: ChatTokenizer) -> None:
    with pytest.raises(PromptRefused, match="there are no messages"):
        tokenizer.prompt([])
