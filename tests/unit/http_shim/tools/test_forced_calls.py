"""Answers that have to call: what their grammars allow is read as calls, and nothing else is allowed."""

import json
from typing import Any

import pytest

from kakeya_http_shim.tools.families import SYNTAXES
from kakeya_http_shim.tools.grammars import forced_calls
from kakeya_http_shim.tools.grammars.lark import AddedId, HeldTool
from tests.unit.http_shim.tools.held_calls import ONE, OTHER, TOOLS, added_id, is_allowed, read, said


def is_forced(text: str, family: str, *, is_whole: bool = True, **how: Any) -> bool:
    """Whether an answer that has to call may be this text; or whether one may begin with it."""
    how = {"tools": TOOLS, "is_single": False, **how}
    return is_allowed(text, forced_calls.grammar(family, added_id=added_id, **how), is_whole=is_whole)


@pytest.mark.parametrize("family", sorted(SYNTAXES))
def test_what_is_allowed_is_read_as_calls(family: str) -> None:
    for calls in ([ONE], [OTHER], [ONE, OTHER, ONE]):
        text = said(family, *calls)
        assert is_forced(text, family)
        found = read(family, text)
        assert (found.content, found.unfinished) == ("", "")
        assert [(call.name, json.loads(call.arguments)) for call in found.calls] == calls


@pytest.mark.parametrize("family", sorted(SYNTAXES))
def test_what_is_not_allowed(family: str) -> None:
    assert not is_forced("Sure!", family, is_whole=False)
    assert not is_forced("", family)
    assert not is_forced(f"{said(family, ONE)} That is all.", family, is_whole=False)
    for call in (("other", {}), ("get_weather", {}), ("get_weather", {"city": "a", "days": "b"}), ("stop", {"a": 1})):
        assert not is_forced(said(family, call), family, is_whole=False)
    assert not is_forced(said(family, ("get_weather", {"city": "a", "unit": "k"})), family, is_whole=False)


@pytest.mark.parametrize("family", sorted(SYNTAXES))
def test_one_call_and_a_named_one(family: str) -> None:
    assert is_forced(said(family, OTHER), family, is_single=True)
    assert not is_forced(said(family, OTHER, OTHER), family, is_single=True)
    assert is_forced(said(family, OTHER, OTHER), family, tools=TOOLS[1:])
    assert not is_forced(said(family, ONE), family, tools=TOOLS[1:])


def marks_of(family: str, added: AddedId) -> str:
    return forced_calls.grammar(family, [HeldTool(0, "f", {})], added, is_single=True)


def test_marks_are_tokens_where_they_are_such() -> None:
    """Mistral's newer form has a mark between name and arguments; a tokenizer that has it has the form, too."""
    older: dict[str, int] = {"[TOOL_CALLS]": 5}
    newer = older | {"[ARGS]": 6}
    assert 'call_0: "{\\"name\\": \\"f\\", \\"arguments\\": " args_0 "}"' in marks_of("mistral", older.get)
    assert "start: <[5]>" in marks_of("mistral", older.get)
    assert "marked: <[5]> call\n" in marks_of("mistral", newer.get)
    assert 'call_0: "f" <[6]> args_0' in marks_of("mistral", newer.get)
    assert '"<tool_call>"' in marks_of("hermes", older.get)
    assert "<[7]>" in marks_of("hermes", (older | {"<tool_call>": 7}).get)
