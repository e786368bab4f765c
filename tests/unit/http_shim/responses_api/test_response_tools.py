"""Functions in Responses: offered, called, answered, in one session."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.http_shim.responses_api.asking import RESPONSES, answered, ask, events, put_together, user
from tests.unit.http_shim.shim import CHAT, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.http_shim.talk import Told
from tests.unit.http_shim.tool_talk import OSLO, ROME, WEATHER, hermes
from tests.unit.http_shim.tool_talk import TOOLS as FUNCTIONS
from tests.unit.sdk import families
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails

WEATHER_TOOL = {"type": "function", "strict": None, **WEATHER["function"]}  # type: ignore[dict-item]  # of an object
TOOLS = [WEATHER_TOOL, {"type": "function", "name": "get_time"}]
ONE, OTHER = hermes("get_weather", OSLO), hermes("get_weather", ROME)


@pytest.fixture(scope="session")
def calling_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tokenizer of a model that calls as Qwen 2.5 does."""
    folder = tmp_path_factory.mktemp("calling")
    families.save(folder, families.ONES["qwen2_5"])
    return folder


@pytest.fixture
async def caller(runtime: ScriptedRuntime, calling_dir: Path) -> AsyncIterator[Shim]:
    runtime.models[0].lane_token_count = 4096  # for lists of tools
    async with serving_shim(runtime, calling_dir, "--live-sessions", "on") as shim:
        yield shim


async def both(shim: Shim, text: str, *, ends: bool = True, **fields: Any) -> Any:
    """What an answer says, which must be the same in a stream but for the ids of its calls."""
    fields = {"tools": TOOLS, "max_output_tokens": len(shim.tokens(text)) + ends, **fields}
    shim.will_say(text, text, ends=ends)
    whole = await answered(shim, **fields)
    stream = put_together(await events(shim, **fields))
    assert said(stream) == said(whole)
    for name in ("status", "unfinished_call", "tools", "tool_choice", "incomplete_details"):
        assert stream.get(name) == whole.get(name)
    return whole


def said(response: Any) -> list[Any]:
    """Texts and calls, in order."""
    return [
        item["content"][0]["text"]
        if item["type"] == "message"
        else (item["name"], json.loads(item["arguments"]), item["status"])
        for item in response["output"]
    ]


def call(arguments: dict[str, Any]) -> tuple[str, dict[str, Any], str]:
    return "get_weather", arguments, "completed"


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (ONE, [call(OSLO)]),
        (f"I look.\n{ONE}\n", ["I look.", call(OSLO)]),
        (f"First {ONE}, then {OTHER}.", ["First", call(OSLO), " , then", call(ROME), " ."]),
        (f"{ONE}\n{OTHER}", [call(OSLO), call(ROME)]),
    ],
)
async def test_calls(caller: Shim, text: str, content: list[Any]) -> None:
    response = await both(caller, text)
    assert (said(response), response["status"]) == (content, "completed")
    for name in ("id", "call_id"):
        ids = [item[name] for item in response["output"] if name in item]
        assert len(set(ids)) == len(ids)
    assert response["tools"][0] == {**WEATHER_TOOL, "strict": False}
    no_more = {"description": None, "parameters": None, "strict": False}
    assert response["tools"][1] == {"type": "function", "name": "get_time", **no_more}


async def test_what_is_cut_behind_a_call(caller: Shim) -> None:
    response = await both(caller, f"{ONE}\n{OTHER[:-30]}", ends=False)
    assert (said(response), response["unfinished_call"]) == ([call(OSLO)], OTHER[:-30])


async def test_no_tool_may_be_called(caller: Shim) -> None:
    response = await both(caller, ONE, tool_choice="none")
    assert (said(response), response["tool_choice"]) == ([ONE], "none")


async def test_one_call_at_a_time(caller: Shim) -> None:
    response = await both(caller, f"{ONE}\n{OTHER}", parallel_tool_calls=False)
    assert (said(response), response["parallel_tool_calls"]) == ([call(OSLO)], False)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "get_weather"}])
async def test_a_call_that_is_forced(caller: Shim, choice: Any) -> None:
    response = await both(caller, ONE, tool_choice=choice, parallel_tool_calls=False)
    assert response["tool_choice"] == choice
    lark = caller.runtime.requests["Generate"][-1].grammar.lark
    assert "get_weather" in lark
    assert ("call_1" in lark) == (choice == "required")


@pytest.mark.parametrize("streams", [False, True])
async def test_calls_and_results_go_on_in_their_session(caller: Shim, streams: bool) -> None:
    conversation: list[Any] = [user("How will it be?")]
    ids = set()
    for number in range(3):
        caller.will_say(f"I look.\n{hermes('get_weather', {'days': number, 'city': 'Oslo'})}")
        body = {"input": conversation, "tools": TOOLS, "max_output_tokens": 500, "stream": streams, "store": False}
        response = await caller.http.post(RESPONSES, json=body)
        told = Told.by(response)
        ids.add(told.id)
        if number:
            behind = "\n<|im_start|>user\n<tool_response>\nSun\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
            assert (told.short, told.appended) == (("continued", "next-turn"), len(caller.tokens(behind)))
        output = _last(response.text)["output"] if streams else response.json()["output"]
        conversation += output
        conversation.append({"type": "function_call_output", "call_id": output[-1]["call_id"], "output": "Sun"})
    assert len(ids) == 1


def _last(stream: str) -> Any:
    data = [line.removeprefix("data: ") for line in stream.splitlines() if line.startswith("data: {")]
    return json.loads(data[-1])["response"]


async def test_a_call_goes_from_one_api_to_the_other(caller: Shim) -> None:
    caller.will_say(ONE)
    first = await ask(caller, tools=TOOLS, max_output_tokens=500)
    (item,) = first.json()["output"]
    function = {"name": item["name"], "arguments": item["arguments"]}
    messages = [
        user("Hello"),
        {"role": "assistant", "tool_calls": [{"id": item["call_id"], "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": item["call_id"], "content": "Sun"},
    ]
    caller.will_say("It will be fine.")
    second = await caller.http.post(CHAT, json={"messages": messages, "tools": FUNCTIONS, "max_tokens": 50})
    assert (Told.by(second).short, Told.by(second).id) == (("continued", "next-turn"), Told.by(first).id)


async def test_a_search_is_taken_and_not_offered(caller: Shim) -> None:
    search = {"type": "web_search", "external_web_access": False}
    caller.will_say("Yes.", "Yes.")
    without = await answered(caller, tools=TOOLS)
    response = await answered(caller, tools=[*TOOLS, search])
    assert response["tools"] == without["tools"]
    assert response["usage"]["input_tokens"] == without["usage"]["input_tokens"]


async def test_functions_of_a_namespace(caller: Shim) -> None:
    namespace = {"type": "namespace", "name": "mcp_sky", "description": "Of the sky", "tools": [WEATHER_TOOL]}
    text = hermes("mcp_sky__get_weather", OSLO)
    response = await both(caller, text, tools=[namespace, {"type": "function", "name": "get_time"}])
    (item,) = response["output"]
    assert (item["namespace"], item["name"]) == ("mcp_sky", "get_weather")
    assert response["tools"][0] == {**namespace, "tools": [{**WEATHER_TOOL, "strict": False}]}
    told = caller.tokenizer.decode(next(iter(caller.runtime.sessions.values())).history)
    assert "mcp_sky__get_weather" in told
    caller.will_say("Fine.")
    result = {"type": "function_call_output", "call_id": item["call_id"], "output": "Sun"}
    tools = [namespace, {"type": "function", "name": "get_time"}]
    again = await ask(caller, input=[user("Hello"), item, result], tools=tools)
    assert Told.by(again).short == ("continued", "next-turn")
    forced = {"type": "function", "name": "mcp_sky__get_weather"}
    caller.will_say(text)
    response = await answered(caller, tools=[namespace], tool_choice=forced, max_output_tokens=500)
    assert [each["name"] for each in response["output"]] == ["get_weather"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "local_shell"}]}, "tools[0].type"),
        ({"tools": [{"type": "custom", "name": "a"}]}, "tools[0].type"),
        ({"tools": [{"type": "namespace", "name": "a", "tools": [{"type": "custom"}]}]}, "tools[0].tools[0].type"),
        ({"tools": [{"type": "namespace", "name": "a", "tools": []}], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": 1, "name": "a"}]}, "tools[0].type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "required", "tools": [{"type": "web_search"}]}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "no"}, "tools": TOOLS}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "tool_choice.type"),
        ({"tool_choice": {"type": "web_search"}, "tools": [{"type": "web_search"}]}, "tool_choice.type"),
    ],
)
async def test_what_is_not_offered(caller: Shim, fields: dict[str, Any], param: str) -> None:
    response = await ask(caller, **fields)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


async def test_a_schema_that_cannot_be_held_to_is_named(caller: Shim) -> None:
    caller.will_say(ONE)
    await answered(caller, tools=[{**WEATHER_TOOL, "strict": True}])
    lines = caller.runtime.requests["Generate"][-1].grammar.lark.splitlines()
    number = next(number for number, line in enumerate(lines, 1) if "%json" in line)
    why = f'grammar.lark: at {number}(9): failed to compile JSON schema: Unimplemented keys: ["not"]\n   1 | TEXT: /'
    caller.runtime.before["Generate"].append(fails("INVALID_FIELD", says=why, field="grammar.lark"))
    response = await ask(caller, tools=[{**WEATHER_TOOL, "strict": True}], input="Again")
    assert (response.status_code, response.json()["error"]["param"]) == (400, "tools[0].parameters")
