"""Answers that have to call: what their grammars allow is read as calls, and nothing else is allowed."""

import json
from functools import cache
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer
from tokenizers import Tokenizer

from kakeya_http_shim.tools import forced_calls
from kakeya_http_shim.tools.deltas import joined
from kakeya_http_shim.tools.families import SYNTAXES
from kakeya_http_shim.tools.forced_calls import AddedId
from kakeya_http_shim.tools.parser import ToolCallParser
from kakeya_http_shim.tools.syntax import OfferedTools
from kakeya_shared import installed_models

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"$ref": "#/$defs/Days"},
        "unit": {"type": "string", "enum": ["c", "f"]},
        "any": True,
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"Days": {"type": "integer"}},
}
TOOLS = OfferedTools({"get_weather": WEATHER, "stop": {}})
ROME = {"city": "Röm\n<b>", "days": 3, "unit": "f", "any": [1]}
Written = tuple[str, dict[str, Any]]
ONE: Written = ("get_weather", ROME)
OTHER: Written = ("stop", {})


def hermes(name: str, arguments: dict[str, Any]) -> str:
    given = json.dumps(arguments, ensure_ascii=False)
    return f'<tool_call>\n{{"name": "{name}", "arguments": {given}}}\n</tool_call>'


def llama(name: str, arguments: dict[str, Any]) -> str:
    return f'{{"name": "{name}", "parameters": {json.dumps(arguments, ensure_ascii=False)}}}'


def mistral(name: str, arguments: dict[str, Any]) -> str:
    return f'{{"name": "{name}", "arguments": {json.dumps(arguments, ensure_ascii=False)}}}'


def qwen_xml(name: str, arguments: dict[str, Any]) -> str:
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
    given = "".join(f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in texts.items())
    return f"<tool_call>\n<function={name}>\n{given}</function>\n</tool_call>"


ONE_CALL = {"hermes": hermes, "llama": llama, "qwen3-xml": qwen_xml, "mistral": mistral}
BETWEEN = {"hermes": "\n", "llama": "; ", "qwen3-xml": "\n", "mistral": ", "}


def said(family: str, *calls: Written) -> str:
    text = BETWEEN[family].join(ONE_CALL[family](name, arguments) for name, arguments in calls)
    return f"[TOOL_CALLS][{text}]" if family == "mistral" else text


@cache
def backend() -> Tokenizer:
    """kakeya-nano's, which has `<tool_call>` and `</tool_call>` as tokens of their own."""
    return Tokenizer.from_file(str(installed_models.directory("kakeya-nano") / "tokenizer.json"))


@cache
def vocabulary() -> LLTokenizer:
    return LLTokenizer(backend().to_str())


def added_id(text: str) -> int | None:
    added = {token.content: id_ for id_, token in backend().get_added_tokens_decoder().items()}
    return added.get(text)


def is_allowed(text: str, family: str, *, is_whole: bool = True, **how: Any) -> bool:
    """Whether an answer may be this text; or whether one may begin with it."""
    lark = forced_calls.grammar(family, TOOLS, added_id, **{"name": None, "is_single": False, **how})
    matcher = LLMatcher(vocabulary(), LLMatcher.grammar_from_lark(lark))
    assert not matcher.is_error(), matcher.get_error()
    token_ids = backend().encode(text, add_special_tokens=False).ids
    return matcher.try_consume_tokens(token_ids) == len(token_ids) and (matcher.is_accepting() or not is_whole)


@pytest.mark.parametrize("family", sorted(SYNTAXES))
def test_what_is_allowed_is_read_as_calls(family: str) -> None:
    for calls in ([ONE], [OTHER], [ONE, OTHER, ONE]):
        text = said(family, *calls)
        assert is_allowed(text, family)
        parser = ToolCallParser(SYNTAXES[family](TOOLS))
        found = joined([*parser.push(text), *parser.finish()])
        assert (found.content, found.unfinished) == ("", "")
        assert [(call.name, json.loads(call.arguments)) for call in found.calls] == calls


@pytest.mark.parametrize("family", sorted(SYNTAXES))
def test_what_is_not_allowed(family: str) -> None:
    assert not is_allowed("Sure!", family, is_whole=False)
    assert not is_allowed("", family)
    assert not is_allowed(f"{said(family, ONE)} That is all.", family, is_whole=False)
    for call in (("other", {}), ("get_weather", {}), ("get_weather", {"city": "a", "days": "b"}), ("stop", {"a": 1})):
        assert not is_allowed(said(family, call), family, is_whole=False)
    assert not is_allowed(said(family, ("get_weather", {"city": "a", "unit": "k"})), family, is_whole=False)


@pytest.mark.parametrize("family", sorted(SYNTAXES))
def test_one_call_and_a_named_one(family: str) -> None:
    assert is_allowed(said(family, OTHER), family, is_single=True)
    assert not is_allowed(said(family, OTHER, OTHER), family, is_single=True)
    assert is_allowed(said(family, OTHER, OTHER), family, name="stop")
    assert not is_allowed(said(family, ONE), family, name="stop")
    with pytest.raises(KeyError):
        is_allowed("", family, name="other")


def marks_of(family: str, added: AddedId) -> str:
    return forced_calls.grammar(family, OfferedTools({"f": {}}), added, name=None, is_single=True)


def test_marks_are_tokens_where_they_are_such() -> None:
    """Mistral's newer form has a mark between name and arguments; a tokenizer that has it has the form, too."""
    older: dict[str, int] = {"[TOOL_CALLS]": 5}
    newer = older | {"[ARGS]": 6}
    assert 'call_0: "{\\"name\\": \\"f\\", \\"arguments\\": " args_0 "}"' in marks_of("mistral", older.get)
    assert "start: <[5]>" in marks_of("mistral", older.get)
    assert 'call_0: <[5]> "f" <[6]> args_0' in marks_of("mistral", newer.get)
    assert '"<tool_call>"' in marks_of("hermes", older.get)
    assert "<[7]>" in marks_of("hermes", (older | {"<tool_call>": 7}).get)
