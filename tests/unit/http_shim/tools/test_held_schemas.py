"""Schemas in grammars: no more of them than what holds an answer, and each of them once."""

import json
from typing import Any

import pytest

from kakeya_http_shim.tools.families import SYNTAXES
from kakeya_http_shim.tools.grammars import forced_calls, lark, strict_calls
from kakeya_http_shim.tools.grammars.held_schema import essential
from kakeya_http_shim.tools.grammars.lark import HeldTool, Spacing
from kakeya_shared.contract.generation_limits import MAX_GRAMMAR_BYTES
from tests.unit.http_shim.tools.held_calls import WEATHER, added_id, matcher

FAMILIES = sorted(SYNTAXES)


def test_what_is_told_of_values_is_left_out() -> None:
    told = {"title": "T", "description": "d", "default": 1, "examples": [1], "$comment": "c", "deprecated": True}
    inner = {**told, "type": "string"}
    schema = {
        **told,
        "type": "object",
        "properties": {"description": inner, "default": {**told, "enum": [{"title": "kept"}]}},
        "required": ["description"],
        "additionalProperties": inner,
        "$defs": {"title": {"anyOf": [inner, True]}},
        "x": [inner],
    }
    assert essential(schema) == {
        "type": "object",
        "properties": {"description": {"type": "string"}, "default": {"enum": [{"title": "kept"}]}},
        "required": ["description"],
        "additionalProperties": {"type": "string"},
        "$defs": {"title": {"anyOf": [{"type": "string"}, True]}},
        "x": [{"type": "string"}],
    }
    assert essential(True) is True
    assert essential({"properties": 5}) == {"properties": 5}


def test_definitions_go_along_where_they_are_referred_to() -> None:
    root = {"$defs": {"A": {"type": "integer"}}, "properties": {}}
    refers: Any = {"type": "array", "items": {"$ref": "#/$defs/A"}}
    assert '"$defs"' in lark.value("v", refers, root, Spacing.WRITTEN)
    assert '"$defs"' not in lark.value("v", {"type": "array"}, root, Spacing.WRITTEN)
    assert lark.value("v", {"type": "integer"}, root, Spacing.FREE) == 'v: %json {"type": "integer"}'
    assert lark.value("v", True, root, Spacing.FREE) == "v: %json true"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_schema_that_several_tools_have_is_said_once(family: str) -> None:
    tools = [HeldTool(number, f"f{number}", WEATHER) for number in range(3)]
    made = forced_calls.grammar(family, tools, added_id, is_single=False)
    schemas = [line.partition("%json ")[2] for line in made.splitlines() if "%json" in line]
    assert len(schemas) == len(set(schemas))
    assert schemas
    matcher(made)


def _small(number: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            f"path{number}": {"type": "string", "description": "Of the file, relative to the workspace. " * 4},
            "limit": {"type": "integer", "minimum": 1, "description": "How many lines are read at most. " * 4},
            "mode": {"type": "string", "enum": ["text", "binary"]},
        },
        "required": [f"path{number}"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_a_hundred_small_tools_leave_room(family: str) -> None:
    tools = [HeldTool(number, f"tool_{number}", essential(_small(number))) for number in range(100)]
    made = strict_calls.grammar(family, tools, added_id, frozenset(), is_single=False)
    assert len(made.encode()) < 0.55 * MAX_GRAMMAR_BYTES
    assert json.dumps("relative")[1:-1] not in made
    matcher(made)
