"""Calls of tools in the answers of chats: the same whole and streamed."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken

from tests.unit.http_shim.shim import Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.http_shim.tool_talk import OSLO, ROME, TOOLS, hermes, said, streamed, whole
from tests.unit.sdk import families, tiny_tokenizer
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

pytestmark = pytest.mark.usefixtures("roomy")
ONE, OTHER = hermes("get_weather", OSLO), hermes("get_weather", ROME)
CALLED = ("get_weather", OSLO)


async def both(shim: Shim, text: str, *, ends: bool = True, **fields: Any) -> Any:
    """What an answer says, which must be the same in a stream."""
    fields = {"tools": TOOLS, "max_tokens": len(shim.tokens(text)) + ends, **fields}
    shim.will_say(text, text, ends=ends)
    response = await shim.chat(**fields)
    assert response.status_code == 200, response.text
    plain = whole(response.json())
    stream = streamed(await shim.events(**fields))
    assert said(stream) == said(plain)
    assert stream.get("unfinished_call") == plain.get("unfinished_call")
    return plain


@pytest.mark.parametrize(
    ("text", "content", "calls", "thoughts"),
    [
        (ONE, "", [CALLED], ""),
        (f"I look.\n{ONE}\n", "I look.", [CALLED], ""),
        (f"First {ONE}, then {OTHER}.", "First , then .", [CALLED, ("get_weather", ROME)], ""),
        (f"{ONE}\n{OTHER}", "", [CALLED, ("get_weather", ROME)], ""),
        (f"<think>\n{OTHER}?\n</think>\n\n{ONE}", "", [CALLED], f"{OTHER}?\n"),
        (f"<think>hm</think>\n\nSo: {ONE}", "So:", [CALLED], "hm"),
    ],
)
async def test_calls(caller: Shim, text: str, content: str, calls: list[Any], thoughts: str) -> None:
    message = await both(caller, text)
    assert said(message) == (content, calls, thoughts, "tool_calls")
    assert (message["content"] is None) == (not content)


@pytest.mark.parametrize(
    "text",
    [
        "Yes.\n",
        '<tool_call>{"name": "get_weather", "arguments": [}</tool_call> it was',
        "<tool_call>no</tool_call>",
        '{"name": "get_weather", "arguments": {}}',
    ],
)
async def test_what_is_no_call_is_content(caller: Shim, text: str) -> None:
    message = await both(caller, text)
    assert message == {"role": "assistant", "content": text, "finish_reason": "stop"}


async def test_a_call_that_is_cut_is_content(caller: Shim) -> None:
    message = await both(caller, ONE[:-30], ends=False)
    assert said(message) == (ONE[:-30], [], "", "length")
    message = await both(caller, f"<think>hm, {ONE}", ends=False)
    assert said(message) == ("", [], f"hm, {ONE}", "length")


async def test_what_is_cut_behind_a_call_is_no_content(caller: Shim) -> None:
    message = await both(caller, f"{ONE}\n{OTHER[:-30]}", ends=False)
    assert said(message) == ("", [CALLED], "", "tool_calls")
    assert message["unfinished_call"] == OTHER[:-30]


async def test_a_stop_text_cuts_a_call(caller: Shim) -> None:
    message = await both(caller, ONE, stop=["Oslo"])
    assert said(message) == (ONE.partition("Oslo")[0], [], "", "stop")
    message = await both(caller, f"{ONE} That is all. {OTHER}", stop=[" all"])
    assert said(message) == (" That is", [CALLED], "", "tool_calls")
    # Hermes' last tag may be missing.
    assert said(await both(caller, ONE, stop=["</tool_call>"])) == ("", [CALLED], "", "tool_calls")


async def test_no_tool_may_be_called(caller: Shim) -> None:
    message = await both(caller, ONE, tool_choice="none")
    assert said(message) == (ONE, [], "", "stop")
    (prompt, _) = [list(request.token_ids) for request in caller.runtime.requests["AppendTokens"]]
    assert "get_weather" in caller.tokenizer.decode(prompt), "its session goes on when they may be called again"


async def test_one_call_at_a_time(caller: Shim) -> None:
    message = await both(caller, f"I look. {ONE}\n{OTHER} So.", parallel_tool_calls=False)
    assert said(message) == ("I look.", [CALLED], "", "tool_calls")
    message = await both(caller, f"{ONE}\n", parallel_tool_calls=False)
    assert said(message) == ("", [CALLED], "", "tool_calls")


async def test_events_of_a_call(caller: Shim) -> None:
    caller.will_say(f"Hm. {ONE}")
    *events, end, done = await caller.events(tools=TOOLS, stream_options={"include_usage": True})
    assert done == "[DONE]"
    assert end["usage"]["completion_tokens"] == len(caller.tokens(f"Hm. {ONE}")) + 1
    deltas = [event["choices"][0]["delta"] for event in events]
    *texts, begun, arguments, last = deltas
    assert "".join(delta.pop("content") for delta in texts) == "Hm."
    assert texts[0] == {"role": "assistant"}
    id_ = begun["tool_calls"][0].pop("id")
    assert len(id_) == 9
    assert begun == {
        "tool_calls": [{"index": 0, "type": "function", "function": {"name": "get_weather", "arguments": ""}}]
    }
    assert arguments == {"tool_calls": [{"index": 0, "function": {"arguments": json.dumps(OSLO)}}]}
    assert (last, events[-1]["choices"][0]["finish_reason"]) == ({}, "tool_calls")


async def test_a_stream_that_begins_with_a_call(caller: Shim) -> None:
    caller.will_say(ONE)
    first = (await caller.events(tools=TOOLS))[0]["choices"][0]["delta"]
    assert (first["role"], first["content"], len(first["tool_calls"])) == ("assistant", None, 1)


async def test_likelihoods_are_of_all_tokens(caller: Shim) -> None:
    text = f"Hm. {ONE}"
    fields: dict[str, Any] = {"tools": TOOLS, "logprobs": True, "max_tokens": len(caller.tokens(text)) + 1}
    caller.will_say(text, text)
    response = (await caller.chat(**fields)).json()
    tokens = [each["token"] for each in response["choices"][0]["logprobs"]["content"]]
    assert "".join(tokens) == text
    events = (await caller.events(**fields))[:-1]
    told = [
        each["token"] for event in events for each in (event["choices"][0]["logprobs"] or {"content": []})["content"]
    ]
    assert told == tokens


async def test_several_answers(caller: Shim) -> None:
    caller.will_say(ONE, "No.", ONE)
    choices = (await caller.chat(tools=TOOLS, n=3, max_tokens=200)).json()["choices"]
    assert sorted(choice["finish_reason"] for choice in choices) == ["stop", "tool_calls", "tool_calls"]
    ids = [call["id"] for choice in choices for call in choice["message"].get("tool_calls", [])]
    assert len(set(ids)) == 2


@pytest.mark.parametrize("family", ["mistral", "llama"])
async def test_marks_that_are_special_tokens(runtime: ScriptedRuntime, tmp_path: Path, family: str) -> None:
    """They have no text; a parser sees them nevertheless, and a client does not."""
    mark = {"mistral": "[TOOL_CALLS]", "llama": "<|python_tag|>"}[family]
    arguments = {"mistral": "arguments", "llama": "parameters"}[family]
    call = json.dumps({"name": "get_weather", arguments: OSLO})
    tiny_tokenizer.save(tmp_path, template=True)
    tiny_tokenizer.add(tmp_path, AddedToken(mark, special=True, normalized=False))
    (tmp_path / "chat_template.jinja").write_text(f"{{{{ tools }}}}{{# {mark} #}}" + tiny_tokenizer.TEMPLATE)
    async with serving_shim(runtime, tmp_path) as shim:
        text = mark + (f" [{call}]" if family == "mistral" else call)
        assert said(await both(shim, f"Hm. {text}")) == ("Hm.", [CALLED], "", "tool_calls")
        assert said(await both(shim, f"{mark} no"))[0] == f"{mark} no"
        shim.will_say(f"{mark}<|im_start|>no")
        assert (await shim.chat(max_tokens=4)).json()["choices"][0]["message"]["content"] == "no"


async def test_a_thought_that_forgets_its_end_before_a_call(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    families.save(tmp_path, families.ONES["qwen3"].replace('{\\"name\\"', "<function=f>\n<parameter=a>"))
    async with serving_shim(runtime, tmp_path) as shim:
        call = "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"
        message = await both(shim, f"<think>\nhm\n{call}")
        assert said(message) == ("", [("get_weather", {"city": "Oslo"})], "hm\n", "tool_calls")


async def test_a_template_of_an_unknown_family(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    families.save(tmp_path, families.ONES["llama3"])
    async with serving_shim(runtime, tmp_path) as shim:
        response = await shim.chat(tools=TOOLS)
        error = response.json()["error"]
        assert (response.status_code, error["param"], error["code"]) == (400, "tools", "unsupported_parameter")
        assert "start the server with --tool-parser" in error["message"]
        assert (await shim.chat(tools=TOOLS, tool_choice="none", max_tokens=1)).status_code == 200
    async with serving_shim(runtime, tmp_path, "--tool-parser", "counter=llama") as shim:
        call = json.dumps({"name": "get_weather", "parameters": OSLO})
        assert said(await both(shim, call)) == ("", [CALLED], "", "tool_calls")


async def test_a_template_that_fails_on_tools(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    families.save(tmp_path, families.NAMED["default"])
    folder = tmp_path / "additional_chat_templates"
    folder.mkdir()
    (folder / "tool_use.jinja").write_text(families.NAMED["tool_use"] + "{# <tool_call> #}")
    async with serving_shim(runtime, tmp_path) as shim:
        bad = {"type": "function", "function": {"name": "f", "parameters": {"properties": [5]}}}
        response = await shim.chat(tools=[bad])
        assert response.status_code == 400, response.text
        assert response.json()["error"]["param"] == "tools"
        assert (await shim.chat(tools=TOOLS[:1], max_tokens=1)).status_code == 200
        prompt = list(shim.runtime.requests["AppendTokens"][-1].token_ids)
        assert "def get_weather(city: str, days: int)" in shim.tokenizer.decode(prompt)


async def test_a_call_that_is_forced(caller: Shim) -> None:
    """The answer is held to calls, behind the model's thoughts, and read as any other."""
    named = {"type": "function", "function": {"name": "get_weather"}}
    for choice, names in (("required", ["get_weather", "get_time"]), (named, ["get_weather"])):
        for is_single in (False, True):
            fields: dict[str, Any] = {
                "tool_choice": choice,
                "parallel_tool_calls": not is_single,
                "kakeya": {"max_reasoning_tokens": 9},
            }
            answer = await both(caller, ONE, **fields, response_format={"type": "json_object"})
            assert answer["tool_calls"][0]["function"]["name"] == "get_weather"
            lark = caller.runtime.requests["Generate"][-1].grammar.lark
            assert ("marked)*" in lark) != is_single
            assert [name for name in ("get_weather", "get_time") if json.dumps(f'"{name}"')[1:-1] in lark] == names
            assert caller.runtime.requests["Generate"][-1].reasoning.max_tokens == 9
