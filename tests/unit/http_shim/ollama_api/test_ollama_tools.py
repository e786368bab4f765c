"""Tools in Ollama's API: offered, called, answered, in one session."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kakeya_http_shim.answers.writer import Heading
from kakeya_http_shim.ollama_api.ollama_requests import OllamaChatRequest
from kakeya_http_shim.ollama_api.ollama_writer import OllamaWriter
from kakeya_http_shim.text.delta import Delta
from kakeya_http_shim.tools.deltas import ArgumentText, CallBegun, Content
from tests.unit.http_shim.ollama_api.asking import ask, lines, put_together
from tests.unit.http_shim.shim import HELLO, MODEL, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.http_shim.talk import Told
from tests.unit.http_shim.tool_talk import OSLO, ROME, TOOLS, hermes
from tests.unit.sdk import families
from tests.unit.sdk.scripted_runtime import ScriptedRuntime


def calling(arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": arguments}}]}


ONE, OTHER = hermes("get_weather", OSLO), hermes("get_weather", ROME)


@pytest.fixture(scope="session")
def calling_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tokenizer of a model that calls as Qwen 2.5 does."""
    folder = tmp_path_factory.mktemp("calling")
    families.save(folder, families.ONES["qwen2_5"])
    return folder


@pytest.fixture
async def caller(roomy: ScriptedRuntime, calling_dir: Path) -> AsyncIterator[Shim]:
    async with serving_shim(roomy, calling_dir, "--live-sessions", "on") as shim:
        yield shim


def functions(message: dict[str, Any]) -> list[tuple[str, Any]]:
    """What is called; each call has an id and its place."""
    calls = message.get("tool_calls", [])
    assert [call["function"]["index"] for call in calls] == list(range(len(calls)))
    assert len({call["id"] for call in calls}) == len(calls)
    return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


async def both(shim: Shim, text: str, *, ends: bool = True) -> Any:
    """The message, which must be the same in a stream but for the ids of its calls."""
    options = {"num_predict": len(shim.tokens(text)) + ends}
    shim.will_say(text, text, ends=ends)
    whole = (await ask(shim, tools=TOOLS, options=options)).json()
    streamed = put_together(await lines(shim, tools=TOOLS, options=options))
    said, told = whole["message"], streamed["message"]
    assert functions(said) == functions(told)
    assert (said["content"], said.get("unfinished_call")) == (told["content"], told.get("unfinished_call"))
    assert whole["done_reason"] == streamed["done_reason"]
    return said | {"done_reason": whole["done_reason"]}


@pytest.mark.parametrize(
    ("said", "content", "calls"),
    [
        (ONE, "", [OSLO]),
        (f"I look.\n{ONE}\n", "I look.", [OSLO]),
        (f"{ONE}\n{OTHER}", "", [OSLO, ROME]),
        (f"First {ONE}, then {OTHER}.", "First , then .", [OSLO, ROME]),
        ("<tool_call>no</tool_call>", "<tool_call>no</tool_call>", []),
    ],
)
async def test_calls(caller: Shim, said: str, content: str, calls: list[Any]) -> None:
    message = await both(caller, said)
    assert (message["content"], message["done_reason"]) == (content, "stop")
    assert functions(message) == [("get_weather", call) for call in calls]


async def test_what_is_cut_behind_a_call(caller: Shim) -> None:
    message = await both(caller, f"{ONE}\n{OTHER[:-30]}", ends=False)
    assert functions(message) == [("get_weather", OSLO)]
    assert (message["unfinished_call"], message["done_reason"]) == (OTHER[:-30], "stop")


async def test_a_call_is_one_line(caller: Shim) -> None:
    caller.will_say(ONE)
    told = await lines(caller, tools=TOOLS, options={"num_predict": 500})
    (line,) = [line for line in told if "tool_calls" in line["message"]]
    assert (line["message"]["content"], functions(line["message"])) == ("", [("get_weather", OSLO)])


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("keeps_ids", [False, True])
async def test_calls_and_results_go_on_in_their_session(caller: Shim, streams: bool, keeps_ids: bool) -> None:
    """ollama-python sends no ids, neither of calls nor with results; others do."""
    messages: list[Any] = [{"role": "user", "content": "How will it be?"}]
    ids = set()
    for number in range(3):
        caller.will_say(f"{hermes('get_weather', {'days': number, 'city': 'Oslo'})}\n{OTHER}")
        body = {"model": MODEL, "messages": messages, "tools": TOOLS, "stream": streams}
        response = await caller.http.post("/api/chat", json=body)
        told = Told.by(response)
        ids.add(told.id)
        if number:
            assert told.short == ("continued", "next-turn")
            shown = "\n<tool_response>\nSun\n</tool_response>" * 2
            behind = f"\n<|im_start|>user{shown}<|im_end|>\n<|im_start|>assistant\n"
            assert told.appended == len(caller.tokens(behind))
        answer = put_together([json.loads(line) for line in response.text.splitlines()])
        message = answer["message"]
        calls = message["tool_calls"]
        results = [{"role": "tool", "content": "Sun", "tool_name": "get_weather"} for _ in calls]
        if keeps_ids:
            results = [result | {"tool_call_id": call["id"]} for result, call in zip(results, calls, strict=True)]
        else:
            message["tool_calls"] = [
                {"function": {name: call["function"][name] for name in ("arguments", "name")}} for call in calls
            ]
        messages += [message, *results]
    assert len(ids) == 1


async def test_results_in_another_order_are_another_conversation(caller: Shim) -> None:
    caller.will_say(f"{ONE}\n{OTHER}", "Sunny.", "Sunny.", "Well.", "Well.")
    first = await ask(caller, tools=TOOLS)
    message = first.json()["message"]
    one, other = (call["id"] for call in message["tool_calls"])
    told = []
    for order in ((one, other), (other, one)):
        results = [{"role": "tool", "content": "Sun", "tool_call_id": id_} for id_ in order]
        messages = [*HELLO, message, *results]
        answer = (await ask(caller, tools=TOOLS, messages=messages)).json()["message"]
        messages += [answer, {"role": "user", "content": "And?"}]
        told.append(Told.by(await ask(caller, tools=TOOLS, messages=messages)))
    assert [each.short for each in told] == [("continued", "next-turn")] * 2
    assert told[0].id != told[1].id


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tools": [{"type": "web_search", "function": {"name": "a"}}]}, "tools[0].type: not supported: tools of"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name: "),
        (
            {
                "messages": [
                    *HELLO,
                    {"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": "{}"}}]},
                ]
            },
            "messages[1].tool_calls[0].function.arguments: ",
        ),
        ({"messages": [*HELLO, calling("{}")]}, "messages[1].tool_calls[0].function.arguments: "),
        ({"messages": [*HELLO, calling({})]}, "messages: the last one calls tools"),
    ],
)
async def test_what_is_not_served_is_refused_by_name(caller: Shim, fields: dict[str, Any], message: str) -> None:
    response = await ask(caller, **fields)
    assert response.status_code == 400
    assert response.json()["error"].startswith(message)


async def test_a_model_whose_template_writes_no_tools(shim: Shim) -> None:
    response = await ask(shim, tools=TOOLS)
    assert response.status_code == 400
    assert response.json()["error"].startswith(f"tools: not supported: the chat template of '{MODEL}'")


def test_halves_of_characters_in_a_call() -> None:
    writer = OllamaWriter(OllamaChatRequest.model_validate({"model": MODEL}))
    delta = Delta((CallBegun(0, "abcdefghi", "say"), ArgumentText(0, '{"text": "a\\ud800b\\u00e9"}')))
    (line,) = writer.pieces(Heading("", 0, MODEL, ""), 0, delta, is_first=True)
    (call,) = json.loads(line)["message"]["tool_calls"]
    assert call["function"]["arguments"] == {"text": "a?bé"}


def test_a_piece_with_text_behind_a_call() -> None:
    writer = OllamaWriter(OllamaChatRequest.model_validate({"model": MODEL}))
    heading = Heading("", 0, MODEL, "")
    delta = Delta((Content("a"), CallBegun(0, "abcdefghi", "say"), ArgumentText(0, "{}"), Content("b")))
    messages = [json.loads(line)["message"] for line in writer.pieces(heading, 0, delta, is_first=True)]
    assert [(message["content"], "tool_calls" in message) for message in messages] == [
        ("a", False),
        ("", True),
        ("b", False),
    ]
    assert writer.usage(heading, []) == b"", "it is told where the answer ends"
