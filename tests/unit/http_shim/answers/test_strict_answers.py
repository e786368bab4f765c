"""Calls of strict tools: what the runtime is asked for, and what a client is told where that cannot be had."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kakeya_stubs.v1 import runtime_pb2 as pb
from tests.unit.http_shim.messages_api.asking import ask as ask_messages
from tests.unit.http_shim.shim import MODEL, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.http_shim.tool_talk import OSLO, TOOLS, WEATHER, hermes, said, whole
from tests.unit.sdk import families, tiny_tokenizer
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails

pytestmark = pytest.mark.usefixtures("roomy")
ONE = hermes("get_weather", OSLO)
STRICT = {"type": "function", "function": {**WEATHER["function"], "strict": True}}  # type: ignore[dict-item]  # nested
MIXED: list[Any] = [TOOLS[1], STRICT]
XML = "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"


async def asked(shim: Shim, text: str, **fields: Any) -> tuple[dict[str, Any], pb.GenerateRequest]:
    """The answer, and what the runtime was asked for."""
    shim.will_say(text)
    response = await shim.chat(**{"tools": MIXED, **fields})
    assert response.status_code == 200, response.text
    return whole(response.json()), shim.runtime.requests["Generate"][-1]


@pytest.mark.parametrize("choice", [{}, {"tool_choice": "auto"}])
async def test_calls_of_strict_tools_are_held(caller: Shim, choice: dict[str, Any]) -> None:
    message, request = await asked(caller, f"<think>hm</think>\n\nI look. {ONE}", **choice)
    assert said(message) == ("I look.", [("get_weather", OSLO)], "hm", "tool_calls")
    lark = request.grammar.lark
    assert "TEXT" in lark
    held = {line.partition(": ")[0]: line for line in lark.splitlines()}
    assert held["args_0"].endswith('"type": "object"}'), "it is not strict"
    assert '"days": {"type": "integer"}' in held["args_1"]
    (opens,), (closes,) = caller.tokens("<think>"), caller.tokens("</think>")
    assert request.reasoning == pb.Reasoning(end_token_ids=[closes], begin_token_ids=[opens])
    num_ids, vocab_size = caller.tokenizer.num_token_ids, caller.runtime.models[0].vocab_size
    assert num_ids == vocab_size or f"{vocab_size - 1}]>" in held["other"]


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": TOOLS},
        {"tools": [{**STRICT, "function": {**STRICT["function"], "strict": False}}]},  # type: ignore[dict-item]  # nested
        {"tool_choice": "none"},
    ],
)
async def test_without_a_strict_tool_nothing_is_held(caller: Shim, fields: dict[str, Any]) -> None:
    _, request = await asked(caller, ONE, **fields)
    assert not request.HasField("grammar")
    assert not request.HasField("reasoning")


async def test_another_form_comes_first(caller: Shim) -> None:
    _, request = await asked(caller, "{}", response_format={"type": "json_object"})
    assert request.grammar.WhichOneof("kind") == "json_schema"
    _, request = await asked(caller, "a", kakeya={"regex": "a"})
    assert request.grammar.regex == "a"


async def test_an_answer_that_ends_with_its_first_call(caller: Shim) -> None:
    _, request = await asked(caller, ONE, parallel_tool_calls=False)
    assert "start: (other)* (TEXT | called)\n" in request.grammar.lark


async def test_messages_have_strict_tools_too(caller: Shim) -> None:
    caller.will_say(ONE)
    tool = {"name": "get_weather", "input_schema": {"type": "object"}, "strict": True}
    response = await ask_messages(caller, tools=[tool], max_tokens=900)
    assert response.json()["stop_reason"] == "tool_use"
    assert "TEXT" in caller.runtime.requests["Generate"][-1].grammar.lark
    await _refused(caller, "args_0")
    error = (await ask_messages(caller, tools=[tool])).json()["error"]
    assert error["message"] == 'tools[0].input_schema: Unimplemented keys: ["not"]'


async def _refused(shim: Shim, rule: str) -> None:
    """The next generation, for what stands in the rule of that name in the last one."""
    lines = shim.runtime.requests["Generate"][-1].grammar.lark.splitlines()
    number = next(number for number, line in enumerate(lines, 1) if line.startswith(f"{rule}:"))
    why = f'grammar.lark: at {number}(9): failed to compile JSON schema: Unimplemented keys: ["not"]\n   1 | TEXT: /'
    shim.runtime.before["Generate"].append(fails("INVALID_FIELD", says=why, field="grammar.lark"))


@pytest.mark.parametrize("choice", ["auto", "required"])
async def test_a_schema_that_cannot_be_held_is_named(caller: Shim, choice: str) -> None:
    await asked(caller, ONE, tool_choice=choice)
    await _refused(caller, "args_1")
    response = await caller.chat(tools=MIXED, tool_choice=choice)
    assert response.status_code == 400
    assert response.json()["error"] == {
        "message": 'tools[1].function.parameters: Unimplemented keys: ["not"]',
        "type": "invalid_request_error",
        "param": "tools[1].function.parameters",
        "code": "invalid_value",
    }


@pytest.mark.parametrize(
    ("choice", "param", "asks"),
    [("auto", "tools", "; a tool with `strict: true` asks for a grammar"), ("required", "tool_choice", "")],
)
async def test_what_else_cannot_be_held_names_the_field_that_asks(
    caller: Shim, choice: str, param: str, asks: str
) -> None:
    fields = {"tools": MIXED, "tool_choice": choice}
    why = "the model's checkpoint brings no tokenizer.json"
    caller.runtime.before["Generate"].append(fails("INVALID_FIELD", says=f"grammar.lark: {why}", field="grammar.lark"))
    error = (await caller.chat(**fields)).json()["error"]
    assert (error["param"], error["message"], error["code"]) == (param, f"{param}: {why}{asks}", "invalid_value")
    caller.runtime.before["Generate"].append(fails("INVALID_FIELD", field="other"))
    assert (await caller.chat(**fields)).json()["error"]["param"] == "other"
    num_asked = len(caller.runtime.requests["Generate"])
    assert (await caller.chat(**fields, ignore_eos=True)).json()["error"]["param"] == "ignore_eos"
    assert len(caller.runtime.requests["Generate"]) == num_asked


@pytest.fixture
async def xml_caller(runtime: ScriptedRuntime, calling_dir: Path) -> AsyncIterator[Shim]:
    """Of a model that forgets to end its thoughts before a call."""
    async with serving_shim(runtime, calling_dir, "--tool-parser", f"{MODEL}=qwen3-xml") as shim:
        yield shim
        await shim.nothing_left()


async def test_a_call_that_ends_thoughts_is_held_within_them(xml_caller: Shim) -> None:
    message, request = await asked(xml_caller, f"<think>hm\n{XML}")
    assert said(message) == ("", [("get_weather", {"city": "Oslo"})], "hm\n", "tool_calls")
    assert request.HasField("grammar")
    assert not request.HasField("reasoning")


@pytest.mark.parametrize("fields", [{"kakeya": {"max_reasoning_tokens": 900}}, {"tool_choice": "required"}])
async def test_what_looks_like_a_call_before_the_grammar_begins_is_a_thought(
    xml_caller: Shim, fields: dict[str, Any]
) -> None:
    message, request = await asked(xml_caller, f"<think>hm\n{XML}\n</think>\n\n{XML}", **fields)
    assert said(message) == ("", [("get_weather", {"city": "Oslo"})], f"hm\n{XML}\n", "tool_calls")
    assert request.HasField("grammar")
    assert request.HasField("reasoning")


async def test_marks_of_thoughts_need_not_be_tokens(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    """Text is free, thoughts are text: only what has to begin behind them needs to know where they end."""
    tiny_tokenizer.save(tmp_path, template=False)
    (tmp_path / "chat_template.jinja").write_text(families.ONES["qwen2_5"] + "{# <think> </think> #}")
    async with serving_shim(runtime, tmp_path) as shim:
        await shim.loaded()
        assert len(shim.tokens("<think>")) > 1
        message, request = await asked(shim, f"<think>hm</think>\n{ONE}")
        assert said(message) == ("", [("get_weather", OSLO)], "hm", "tool_calls")
        assert request.HasField("grammar")
        assert not request.HasField("reasoning")
        response = await shim.chat(tools=MIXED, kakeya={"max_reasoning_tokens": 7})
        assert response.json()["error"]["param"] == "kakeya.max_reasoning_tokens"
        response = await shim.chat(tools=MIXED, tool_choice="required")
        assert response.json()["error"]["param"] == "tool_choice"
