"""Answers that may call strict tools: free, but for calls, which are held from their trigger on."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_http_shim.tools.families import SYNTAXES
from kakeya_http_shim.tools.grammars import faults, forced_calls, lark, strict_calls
from kakeya_http_shim.tools.grammars.lark import HeldTool
from kakeya_shared import installed_models
from kakeya_shared.errors.tree import InvalidField
from kakeya_worker.grammars.grammar import Grammar
from kakeya_worker.grammars.grammars import Grammars
from tests.unit.http_shim.tools.held_calls import (
    ONE,
    OTHER,
    ROME,
    TOOLS,
    WEATHER,
    added_id,
    backend,
    is_allowed,
    matcher,
    read,
    said,
    tokens,
    vocabulary,
)

MIXED = [HeldTool(0, "get_weather", WEATHER), HeldTool(1, "stop", {}, is_strict=False)]
BAD = ("get_weather", {"city": "a", "days": "b"})
WHATEVER = ("stop", {"a": "x", "b": [1]})
NO_TEXT = backend().token_to_id("ÿ")
TEXTLESS = frozenset([*backend().get_added_tokens_decoder(), *([] if NO_TEXT is None else [NO_TEXT])])
FAMILIES = sorted(SYNTAXES)
# Llama's calls without a mark end the answer.
HAS_TEXT_BEHIND = [family for family in FAMILIES if family != "llama"]
PYTHONIC = '[get_weather(city="Röm", days=3)]'


def grammar(family: str, tools: Any = TOOLS, *, is_single: bool = False) -> str:
    return strict_calls.grammar(family, tools, added_id, TEXTLESS, is_single=is_single)


def may_be(family: str, text: str, *, is_single: bool = False, tools: Any = TOOLS, **how: bool) -> bool:
    return is_allowed(text, grammar(family, tools, is_single=is_single), **how)


@pytest.mark.parametrize("is_spelled", [False, True], ids=["token", "letters"])
@pytest.mark.parametrize("family", FAMILIES)
def test_calls_among_text_are_held(family: str, is_spelled: bool) -> None:
    one, bad = said(family, ONE), said(family, BAD)
    how = {"is_spelled": is_spelled}
    assert may_be(family, f"I look.\n{one}", **how)
    assert may_be(family, said(family, ONE, OTHER, ONE), **how)
    assert not may_be(family, f"I look.\n{bad}", is_whole=False, **how)
    assert not may_be(family, bad, is_whole=False, **how)
    assert not may_be(family, one[:-6], **how), "an answer does not end within a call"
    assert not may_be(family, said(family, ("stop", {"a": 1})), is_whole=False, **how)
    if family in HAS_TEXT_BEHIND:
        assert may_be(family, f"{one}\nand {one} So.", **how)
        assert not may_be(family, f"{one}\nand {bad}", is_whole=False, **how)
        assert not may_be(family, said(family, ("other", {})), is_whole=False, **how), "it was not offered"
    found = read(family, f"I look.\n{one}")
    assert [(call.name, json.loads(call.arguments)) for call in found.calls] == [ONE]


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("hermes", '<tool_call>{"name":"get_weather",  "arguments": {"city":"a", "days": 1}}</tool_call>'),
        ("hermes", '<tool_call>\n{\n  "name": "stop",\n  "arguments": {}\n}\n</tool_call>'),
        ("mistral", '[TOOL_CALLS] [{"name":"stop","arguments":{}},\n{"name": "stop", "arguments": {}}]'),
        ("llama", '<|python_tag|> {"name":"stop",  "parameters": {}}\n{"name": "stop", "parameters": {}}'),
        ("llama", '{"name":"stop","parameters":{}}\n{"name":"stop","parameters":{}}'),
        ("llama", '[get_weather(city="a",days=1)]'),
    ],
)
def test_white_space_is_the_models(family: str, text: str) -> None:
    assert may_be(family, text)
    assert read(family, text).calls
    assert not may_be(family, text.replace("stop", "get_weather").replace("1", "true"), is_whole=False)


@pytest.mark.parametrize("family", FAMILIES)
def test_tools_that_are_not_strict_are_free_in_their_arguments(family: str) -> None:
    assert may_be(family, said(family, ONE, WHATEVER), tools=MIXED)
    assert may_be(family, said(family, OTHER), tools=MIXED)
    assert may_be(family, said(family, WHATEVER, ONE), tools=MIXED)
    assert not may_be(family, said(family, WHATEVER, BAD), tools=MIXED, is_whole=False)
    assert not may_be(family, said(family, BAD), tools=MIXED, is_whole=False)
    assert read(family, said(family, WHATEVER)).calls


@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_may_end_with_its_first_call(family: str) -> None:
    one = said(family, ONE)
    assert may_be(family, f"So:\n{one}", is_single=True)
    assert may_be(family, "So.", is_single=True)
    assert not may_be(family, f"{one}\nSo.", is_single=True, is_whole=False)
    assert not may_be(family, said(family, ONE, ONE), is_single=True, is_whole=False)


@pytest.mark.parametrize("is_single", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_trigger_every_token_is_allowed(family: str, is_single: bool) -> None:
    begins = [
        "",
        "Hello",
        "a <tool",
        "a\n[TOOL",
        "x <function=",
        ' {"name": "',
        '\n{"name": "get_weather", ',
        "\n[stop",
    ]
    odd = [[*tokens("a"), *sorted(TEXTLESS - {added_id("<tool_call>")})], [200, 201], tokens("é")[:1]]
    for token_ids in [*map(tokens, begins), *odd]:
        held = matcher(grammar(family, is_single=is_single))
        assert held.try_consume_tokens(token_ids) == len(token_ids)
        assert held.is_accepting()
        bits = np.unpackbits(np.frombuffer(held.compute_bitmask(), np.uint8), bitorder="little")
        assert bits[: vocabulary().size].all()


@given(st.sampled_from(FAMILIES), st.lists(st.sampled_from(["<tool_call>", "[TOOL_CALLS]", "{", "\n", '"name"', "a"])))
def test_what_is_read_as_a_call_was_held(family: str, parts: list[str]) -> None:
    """No text around a bad call makes one that gets through."""
    text = "".join(parts) + said(family, BAD)
    if any(call.name == BAD[0] for call in read(family, text).calls):
        assert not may_be(family, text, is_whole=False)
        assert not may_be(family, text, is_whole=False, is_spelled=True)


@pytest.mark.parametrize(
    ("text", "is_held"),
    [
        ('{"name":"get_weather","arguments": {"city": "a"}}', True),
        ('{ "type": "function", "name": "get_weather", "parameters": {"city": "a"}}', True),
        ('{"name": "get_weather", "parameters": {"days": 1}}', False),
        (PYTHONIC, True),
        ('Well:\n  [stop(), get_weather(city="a", any={"b": [null]})]', True),
        ("[get_weather(days=3)]", False),
        ("[get_weather(city=3)]", False),
        ("[stop(a=1)]", False),
        (f"<|python_start|>{PYTHONIC}<|python_end|> and more", True),
        ('<|python_tag|>{"name": "stop", "parameters": {}}; {"name": "stop", "parameters": {}}', True),
        ("<|python_tag|>[stop(), get_weather(city=1)]", False),
        ("<|python_tag|>So", False),
    ],
)
def test_forms_of_llama(text: str, is_held: bool) -> None:
    assert may_be("llama", text, is_whole=is_held) == is_held
    assert not is_held or read("llama", text).calls


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Ada", "age": 36}',
        'It is {"name": "get_weather", "parameters": 5}',
        "[1, 2]",
        "[get_weather]",
        '{"parameters": {}, "name": "stop"}',
    ],
)
def test_what_is_free_of_llama(text: str) -> None:
    assert may_be("llama", text)


def test_tools_that_python_cannot_name_have_no_list() -> None:
    assert may_be("llama", "[get-time.now()]", tools=[HeldTool(2, "9lives", {}), *TOOLS])
    odd = HeldTool(0, "f", {"properties": {"a-b": {}}})
    assert "list_0" not in grammar("llama", [odd])
    assert "list_" not in grammar("llama", [HeldTool(0, "0", {})])


def test_a_function_without_the_first_tag() -> None:
    called = "<function=get_weather>\n<parameter=city>\na\n</parameter>\n</function>"
    assert may_be("qwen3-xml", f"So {called}\n</tool_call> and <function=other> too")
    assert not may_be("qwen3-xml", "<function=get_weather>\n</function>", is_whole=False)
    assert may_be("qwen3-xml", "<function=stop>\n<parameter=a>\n1</function>", tools=MIXED)


def test_marks_are_tokens_or_letters() -> None:
    ids = {"[TOOL_CALLS]": 5, "[ARGS]": 6, "<|python_tag|>": 7, "<|python_start|>": 8, "<|python_end|>": 9}
    made = strict_calls.grammar("mistral", TOOLS, ids.get, [5, 6, 9, 2, 3], is_single=False)
    assert "opened: TEXT <[5-5]> | spelled" in made
    assert "other: TEXT <[2-3,6-6,9-9]>" in made
    assert "called: opened call\n" in made
    made = strict_calls.grammar("llama", TOOLS, ids.get, [], is_single=True)
    assert "opened: TEXT <[7-8]> | spelled" in made
    assert "other" not in made
    assert "called: marked <[9]>" in made
    assert lark.tokens([]) == ""


@pytest.fixture(scope="module")
def grammars() -> Iterator[Grammars]:
    """A worker's."""
    made = Grammars(installed_models.directory("kakeya-nano") / "tokenizer.json", "", vocabulary().size)
    yield made
    made.close(60)


@pytest.mark.parametrize("family", FAMILIES)
async def test_the_tool_that_is_at_fault(grammars: Grammars, family: str) -> None:
    bad = HeldTool(3, "bad", {"properties": {"a": {"not": {"type": "integer"}}}})
    tools = [*TOOLS, bad]
    for made in (
        forced_calls.grammar(family, tools, added_id, is_single=False),
        strict_calls.grammar(family, tools, added_id, TEXTLESS, is_single=False),
    ):
        with pytest.raises(InvalidField) as caught:
            await grammars.check(Grammar("lark", (made,)))
        assert faults.of_schema(made, str(caught.value)) == (3, 'Unimplemented keys: ["not"]')


@pytest.mark.parametrize("message", ["grammar.lark: too large", "at 1(1): no rule", "at 99(1): no line"])
def test_a_fault_that_is_no_tools(message: str) -> None:
    assert faults.of_schema(grammar("hermes"), message) is None


def test_arguments_come_through() -> None:
    text = said("qwen3-xml", ONE)
    assert may_be("qwen3-xml", text)
    (call,) = read("qwen3-xml", text).calls
    assert json.loads(call.arguments) == ROME
