"""Tools in Anthropic's Messages: offered, called, answered, in one session."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kakeya_http_shim.messages_api.answer_blocks import blocks
from kakeya_http_shim.text.delta import Delta
from kakeya_http_shim.tools.deltas import ArgumentText, CallBegun
from tests.unit.http_shim.messages_api.asking import COUNT, MESSAGES, ask, count, events, put_together
from tests.unit.http_shim.shim import CHAT, HELLO, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.http_shim.talk import Told
from tests.unit.http_shim.tool_talk import OSLO, ROME, WEATHER, hermes
from tests.unit.http_shim.tool_talk import TOOLS as FUNCTIONS
from tests.unit.sdk import families
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

WEATHER_TOOL = {
    "name": "get_weather",
    "description": "How it will be",
    "input_schema": WEATHER["function"]["parameters"],  # type: ignore[index]  # of a nested object
    "cache_control": {"type": "ephemeral"},
}
TOOLS = [WEATHER_TOOL, {"type": "custom", "name": "get_time", "input_schema": {}, "eager_input_streaming": True}]
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
    fields = {"tools": TOOLS, "max_tokens": len(shim.tokens(text)) + ends, **fields}
    shim.will_say(text, text, ends=ends)
    whole = (await ask(shim, **fields)).json()
    told = await events(shim, **fields)
    for event in told:
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            assert event["content_block"].pop("input") == {}
            event["content_block"]["partial_json"] = ""
    stream = put_together(told)
    for block in stream["content"]:
        if block["type"] == "tool_use":
            block["input"] = json.loads(block.pop("partial_json"))
    for name in ("content", "stop_reason", "stop_sequence"):
        assert without_ids(stream[name]) == without_ids(whole[name])
    assert stream.get("unfinished_call") == whole.get("unfinished_call")
    return whole


def without_ids(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [{name: value for name, value in block.items() if name != "id"} for block in content]


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def call(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "name": "get_weather", "input": arguments}


@pytest.mark.parametrize(
    ("said", "content"),
    [
        (ONE, [call(OSLO)]),
        (f"I look.\n{ONE}\n", [text("I look."), call(OSLO)]),
        (f"First {ONE}, then {OTHER}.", [text("First"), call(OSLO), text(" , then"), call(ROME), text(" .")]),
        (f"{ONE}\n{OTHER}", [call(OSLO), call(ROME)]),
    ],
)
async def test_calls(caller: Shim, said: str, content: list[Any]) -> None:
    answer = await both(caller, said)
    assert (without_ids(answer["content"]), answer["stop_reason"]) == (content, "tool_use")
    ids = [block["id"] for block in answer["content"] if "id" in block]
    assert len(set(ids)) == len(ids)


async def test_what_is_no_call_is_text(caller: Shim) -> None:
    answer = await both(caller, "<tool_call>no</tool_call>")
    assert (answer["content"], answer["stop_reason"]) == ([text("<tool_call>no</tool_call>")], "end_turn")
    answer = await both(caller, ONE[:-30], ends=False)
    assert (answer["content"], answer["stop_reason"]) == ([text(ONE[:-30])], "max_tokens")


async def test_what_is_cut_behind_a_call(caller: Shim) -> None:
    answer = await both(caller, f"{ONE}\n{OTHER[:-30]}", ends=False)
    assert (without_ids(answer["content"]), answer["stop_reason"]) == ([call(OSLO)], "tool_use")
    assert answer["unfinished_call"] == OTHER[:-30]


async def test_a_stop_sequence_behind_a_call(caller: Shim) -> None:
    answer = await both(caller, f"{ONE} That is all.", stop_sequences=[" all"])
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("tool_use", None)


async def test_no_tool_may_be_called(caller: Shim) -> None:
    answer = await both(caller, ONE, tool_choice={"type": "none"})
    assert (answer["content"], answer["stop_reason"]) == ([text(ONE)], "end_turn")


async def test_one_call_at_a_time(caller: Shim) -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    answer = await both(caller, f"{ONE}\n{OTHER}", tool_choice=choice)
    assert without_ids(answer["content"]) == [call(OSLO)]
    answer = await both(caller, f"{ONE}\n{OTHER}", tool_choice={"type": "auto"})
    assert without_ids(answer["content"]) == [call(OSLO), call(ROME)]


async def test_tools_are_counted(caller: Shim) -> None:
    counted = await count(caller, tools=TOOLS)
    assert counted > await count(caller) + 100
    caller.will_say("Yes.")
    assert (await ask(caller, tools=TOOLS)).json()["usage"]["input_tokens"] == counted


@pytest.mark.parametrize("streams", [False, True])
async def test_calls_and_results_go_on_in_their_session(caller: Shim, streams: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": "How will it be?"}]
    ids = set()
    for number in range(3):
        said = hermes("get_weather", {"days": number, "city": "Oslo"})
        caller.will_say(said)
        body = {"messages": messages, "tools": TOOLS, "max_tokens": 500, "stream": streams}
        response = await caller.http.post(MESSAGES, json=body)
        told = Told.by(response)
        ids.add(told.id)
        if number:
            behind = "\n<|im_start|>user\n<tool_response>\nSun\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
            assert (told.short, told.appended) == (("continued", "next-turn"), len(caller.tokens(behind)))
        (block,) = response.json()["content"] if not streams else [called(response.text)]
        messages.append({"role": "assistant", "content": [block]})
        result = {"type": "tool_result", "tool_use_id": block["id"], "content": [text("Sun")]}
        messages.append({"role": "user", "content": [result]})
    assert len(ids) == 1


def called(stream: str) -> dict[str, Any]:
    """The one call of a stream."""
    data = [json.loads(line.removeprefix("data: ")) for line in stream.splitlines() if line.startswith("data: ")]
    (block,) = [event["content_block"] for event in data if event["type"] == "content_block_start"]
    pieces = [event["delta"]["partial_json"] for event in data if event["type"] == "content_block_delta"]
    return {**block, "input": json.loads("".join(pieces))}


async def test_a_call_goes_from_one_api_to_the_other(caller: Shim) -> None:
    caller.will_say(ONE)
    first = await ask(caller, tools=TOOLS, max_tokens=500)
    (block,) = first.json()["content"]
    function = {"name": block["name"], "arguments": json.dumps(block["input"])}
    chat = [
        *HELLO,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": block["id"], "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": block["id"], "content": "Sun"},
    ]
    caller.will_say("Sunny.")
    tools = [FUNCTIONS[0], {"type": "function", "function": {"name": "get_time", "parameters": {}}}]
    response = await caller.http.post(CHAT, json={"messages": chat, "tools": tools, "max_tokens": 50})
    told = Told.by(response)
    assert (told.short, told.id) == (("continued", "next-turn"), Told.by(first).id)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type: not supported: tools of"),
        (
            {"tools": [{"type": "bash_20250124", "name": "bash"}]},
            "tools[0].type: not supported: tools of",
        ),
        ({"tools": [{"name": "a"}]}, "tools[0].input_schema: "),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0].name: "),
        ({"tool_choice": {"type": "any"}}, "tool_choice: there are no tools to call"),
        ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "a"}}, "tool_choice: there is no tool a"),
    ],
)
async def test_what_is_not_served_is_refused_by_name(caller: Shim, fields: dict[str, Any], message: str) -> None:
    for path in (MESSAGES, COUNT):
        more = {"max_tokens": 1} if path == MESSAGES else {}
        response = await caller.http.post(path, json={"messages": HELLO, **more, **fields})
        assert response.status_code == 400
        assert response.json()["error"]["message"].startswith(message)


async def test_a_model_whose_template_writes_no_tools(shim: Shim) -> None:
    for path, more in ((MESSAGES, {"max_tokens": 1}), (COUNT, {})):
        response = await shim.http.post(path, json={"messages": HELLO, "tools": TOOLS, **more})
        assert response.status_code == 400
        assert response.json()["error"]["message"].startswith("tools: not supported: the chat template of 'counter'")


def test_halves_of_characters_in_a_call() -> None:
    parts = (CallBegun(0, "abcdefghi", "say"), ArgumentText(0, '{"text": "a\\ud800b\\u00e9"}'))
    (block,) = blocks(Delta(parts), hides_thoughts=False)
    assert json.loads(block.model_dump_json())["input"] == {"text": "a?bé"}


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}])
async def test_a_call_that_is_forced(caller: Shim, choice: dict[str, Any]) -> None:
    answer = await both(caller, ONE, tool_choice={**choice, "disable_parallel_tool_use": True})
    assert [block["type"] for block in answer["content"]] == ["tool_use"]
    lark = caller.runtime.requests["Generate"][-1].grammar.lark
    assert "get_weather" in lark
    assert ("call_1" in lark) == (choice["type"] == "any")


async def test_a_tool_that_is_found_on_the_way_leaves_the_session_as_it_is(caller: Shim) -> None:
    """The list of tools grows by what a search of the client's has found, and the prompt's beginning stays."""
    search = {"name": "find", "input_schema": {}}
    later = {**WEATHER_TOOL, "defer_loading": True}
    searched, called = hermes("find", {}), hermes("get_weather", OSLO)
    caller.will_say(searched, called)
    first = await ask(caller, tools=[search], max_tokens=len(caller.tokens(searched)) + 1)
    (use,) = first.json()["content"]
    found = {"type": "tool_result", "tool_use_id": use["id"]}
    found["content"] = [{"type": "tool_reference", "tool_name": "get_weather"}]
    messages = [*HELLO, {"role": "assistant", "content": [use]}, {"role": "user", "content": [found]}]
    told = {"messages": messages, "tools": [search, later], "max_tokens": len(caller.tokens(called)) + 1}
    second = await ask(caller, **told)
    assert second.headers["kakeya-session"].startswith("continued; ")
    (use,) = second.json()["content"]
    assert (use["name"], use["input"]) == ("get_weather", OSLO)
