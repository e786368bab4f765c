import json
from typing import Any

import pytest

from kakeya_http_shim.tools.argument_types import known_arguments, typed, types_of_argument

_ROOT: dict[str, Any] = {
    "$defs": {"a/b": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}, "leaf": 5},
    "properties": {},
}


def _types(schema: Any) -> Any:
    return types_of_argument("x", _ROOT | {"properties": {"x": schema}})


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["integer", "null"]}, {"integer", "null"}),
        ({"type": []}, None),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"integer", "null"}),
        ({"oneOf": [{"type": "integer"}, {}]}, None),
        ({"anyOf": []}, None),
        ({"allOf": [{"type": ["integer", "null"]}, {"type": "integer"}, {}]}, {"integer"}),
        ({"allOf": [{"type": "null"}, {"type": "integer"}]}, None),
        ({"allOf": [{}]}, None),
        ({"enum": ["a", 1, 1.5, True, None, [], {}]}, {"string", "number", "boolean", "null", "array", "object"}),
        ({"const": None}, {"null"}),
        ({"enum": []}, None),
        ({"$ref": "#/$defs/a~1b"}, {"integer"}),
        ({"$ref": "#/$defs/loop"}, None),
        ({"$ref": "#/$defs/none/none"}, None),
        ({"$ref": "#/$defs/leaf/none"}, None),
        ({"$ref": "https://example.com"}, None),
        ({"$ref": 5}, None),
        ({"properties": {}}, {"object"}),
        ({"items": {}}, {"array"}),
        ({"description": "any"}, None),
        (True, None),
    ],
)
def test_types_of_a_schema(schema: Any, types: set[str] | None) -> None:
    assert _types(schema) == (None if types is None else frozenset(types))


def test_arguments_that_a_schema_does_not_name() -> None:
    assert types_of_argument("y", {"additionalProperties": {"type": "string"}}) == frozenset({"string"})
    assert types_of_argument("y", {"properties": {"x": {"type": "string"}}}) is None
    assert types_of_argument("y", {"properties": None, "additionalProperties": False}) is None
    assert known_arguments({"properties": {"x": {}}}) == {"x"}
    assert known_arguments({"properties": None}) == frozenset()


@pytest.mark.parametrize(
    ("text", "types", "value"),
    [
        ("02139", {"string"}, '"02139"'),
        (' "a"\n', {"string"}, '" \\"a\\"\\n"'),
        ("12345678901234567890123", {"integer"}, "12345678901234567890123"),
        (" 1e20 ", {"number"}, "1e20"),
        ("1.50", {"integer"}, "1.50"),
        ("many", {"integer"}, '"many"'),
        ("5", {"string", "integer"}, "5"),
        ("null", {"string", "null"}, "null"),
        ("None", {"string", "null"}, "null"),
        ("False", {"boolean"}, "false"),
        ("true", {"string", "object"}, '"true"'),
        ('{"a":  1}', {"object"}, '{"a":  1}'),
        ("{'a': (1, None)}", {"object"}, '{"a": [1, null]}'),
        ('{"a": 1, "a": 2}', {"object"}, '"{\\"a\\": 1, \\"a\\": 2}"'),
        ("'a'", {"integer"}, "\"'a'\""),
        ("[1] [2]", {"array"}, '"[1] [2]"'),
        ("[1", {"array"}, '"[1"'),
        ("", {"integer"}, '""'),
        ('"a"', None, '"\\"a\\""'),
        ("[1]", None, "[1]"),
        ("True", None, '"True"'),
        ("é\ud83d", None, '"é\ud83d"'),
    ],
)
def test_a_text_becomes_what_the_schema_says(text: str, types: set[str] | None, value: str) -> None:
    assert typed(text, None if types is None else frozenset(types)) == value
    json.loads(value)
