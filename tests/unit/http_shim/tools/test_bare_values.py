"""Arguments without a notation that have to be of a schema: what is allowed is read as the schema has it."""

import json
from typing import Any

import jsonschema_rs
import pytest

from kakeya_http_shim.tools.deltas import joined
from kakeya_http_shim.tools.families import SYNTAXES
from kakeya_http_shim.tools.grammars import forced_calls
from kakeya_http_shim.tools.grammars.lark import HeldTool
from kakeya_http_shim.tools.parser import ToolCallParser
from kakeya_http_shim.tools.syntax import OfferedTools
from tests.unit.http_shim.tools.held_calls import added_id, is_allowed

TEXTS = (
    "", "a", "ab", "abcdef", "first", "a\nb", " x", "a/b", "a|b", "null", "true", "1", "-3", "1.5", "99999",
    "{}", '{"b": 1}', '{"b": "c"}', "[1]", '["a"]', '"a"', "a</parameter>b", "Röm",
)  # fmt: skip
SHADE = {"type": "string", "enum": ["a", "first"]}
PAIR = {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"], "additionalProperties": False}

NUMBERS = {"type": "array", "items": {"type": "integer"}}


def schema_of(argument: Any) -> dict[str, Any]:
    """Of the arguments of a tool."""
    return {
        "type": "object",
        "properties": {"a": argument},
        "required": ["a"],
        "additionalProperties": False,
        "$defs": {"Shade": SHADE, "Pair": PAIR},
    }


def said(text: str) -> str:
    return f"<tool_call>\n<function=f>\n<parameter=a>\n{text}\n</parameter>\n</function>\n</tool_call>"


def grammar(argument: Any) -> str:
    tool = HeldTool(0, "f", schema_of(argument))
    return forced_calls.grammar("qwen3-xml", [tool], added_id, is_single=True)


def is_valid(argument: Any, text: str) -> bool:
    """Whether a call with this text is one of the schema."""
    schema = schema_of(argument)
    parser = ToolCallParser(SYNTAXES["qwen3-xml"](OfferedTools({"f": schema})))
    calls = joined([*parser.push(said(text)), *parser.finish()]).calls
    return bool(calls) and jsonschema_rs.is_valid(schema, json.loads(calls[0].arguments))


@pytest.mark.parametrize(
    ("argument", "num_allowed"),
    [
        ({"type": "string"}, 23),
        ({"type": "string", "minLength": 2, "maxLength": 5}, 16),
        ({"type": "string", "maxLength": 1}, 3),
        ({"type": "string", "minLength": 6}, 4),
        ({"type": "string", "pattern": "^a|b$"}, 7),
        ({"type": "string", "pattern": "a/b"}, 1),
        ({"type": "string", "pattern": "[/|]b"}, 2),
        ({"type": "string", "pattern": r"^(a|b|\$)+$", "maxLength": 1}, 1),
        (SHADE, 2),
        ({"const": "a"}, 1),
        ({"enum": [1, "a", None]}, 3),
        ({"type": ["string", "null"], "enum": ["a", None]}, 2),
        ({"$ref": "#/$defs/Shade"}, 2),
        ({"allOf": [{"$ref": "#/$defs/Shade"}]}, 2),
        ({"anyOf": [{"$ref": "#/$defs/Shade"}, {"type": "null"}]}, 3),
        ({"anyOf": [{"enum": ["a"]}, {"type": "integer", "minimum": 0, "maximum": 10}]}, 2),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 23),
        ({"type": ["string", "integer"]}, 23),
        ({"type": ["string", "integer", "null"], "maxLength": 3}, 16),
        ({"anyOf": [{"type": "string"}, {"$ref": "#/$defs/Pair"}, NUMBERS]}, 20),
        ({"type": "integer", "minimum": 0}, 2),
        ({"$ref": "#/$defs/Pair"}, 1),
        (True, 23),
        ({}, 23),
    ],
    ids=json.dumps,
)
def test_what_is_allowed_is_what_is_valid(argument: Any, num_allowed: int) -> None:
    held = grammar(argument)
    allowed = [text for text in TEXTS if is_allowed(said(text), held)]
    assert allowed == [text for text in TEXTS if is_valid(argument, text)]
    assert len(allowed) == num_allowed


@pytest.mark.parametrize("argument", [{"type": "string", "minLength": 2}, {"type": "string", "pattern": "b"}])
def test_a_text_that_ends_too_early_does_not_go_on_behind_its_end(argument: Any) -> None:
    begun = said("a").removesuffix("</function>\n</tool_call>")
    assert is_allowed(begun.removesuffix(">\n"), grammar(argument), is_whole=False)
    assert not is_allowed(begun.removesuffix("\n"), grammar(argument), is_whole=False)


def test_a_text_of_the_longest_length_is_ended() -> None:
    held = grammar({"type": "string", "maxLength": 3})
    assert not is_allowed("<tool_call>\n<function=f>\n<parameter=a>\nabcd", held, is_whole=False)
    assert is_allowed("<tool_call>\n<function=f>\n<parameter=a>\nabc\n</para", held, is_whole=False)
