"""POST /v1/responses: what it answers."""

import asyncio
from typing import Any

import pytest

from kakeya_http_shim.answers.writer import Heading
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.requests.messages import MAX_MESSAGES
from kakeya_http_shim.responses_api.as_chat import Stretch, chat_request, going_on, own_items
from kakeya_http_shim.responses_api.response_object import ResponseObject
from kakeya_http_shim.responses_api.responses_request import ResponsesRequest
from kakeya_http_shim.responses_api.responses_writer import ResponsesWriter
from kakeya_stubs.v1 import runtime_pb2 as pb
from tests.unit.http_shim.responses_api.asking import RESPONSES, answered, ask, events, put_together, texts, user
from tests.unit.http_shim.shim import Shim

ALWAYS_THERE = {
    *("id", "object", "created_at", "completed_at", "status", "incomplete_details", "model", "previous_response_id"),
    *("instructions", "output", "error", "tools", "tool_choice", "truncation", "parallel_tool_calls", "text", "top_p"),
    *("presence_penalty", "frequency_penalty", "top_logprobs", "temperature", "reasoning", "usage"),
    *("max_output_tokens", "max_tool_calls", "store", "background", "service_tier", "metadata", "safety_identifier"),
    "prompt_cache_key",
}
"""By Open Responses."""


async def test_a_response(shim: Shim) -> None:
    shim.will_say("Hi there!")
    response = await answered(shim)
    ResponseObject.model_validate(response, strict=True)
    assert response.keys() >= ALWAYS_THERE
    assert response["id"].startswith("resp_")
    (message,) = response["output"]
    part = {"type": "output_text", "text": "Hi there!", "annotations": [], "logprobs": []}
    assert message.pop("id").startswith("msg_")
    assert message == {"type": "message", "status": "completed", "role": "assistant", "content": [part]}
    assert (response["object"], response["status"], response["model"]) == ("response", "completed", "counter")
    assert response["created_at"] <= response["completed_at"]
    usage = response["usage"]
    assert usage["output_tokens"] == len(shim.tokens("Hi there!")) + 1
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["input_tokens_details"] == {"cached_tokens": 0}
    assert usage["output_tokens_details"] == {"reasoning_tokens": 0}
    assert usage["kakeya"]["history"] == usage["total_tokens"]


async def test_what_was_asked_for_is_said_again(shim: Shim) -> None:
    shim.will_say("Hi", "Hi")
    plain = await answered(shim)
    assert (plain["temperature"], plain["top_p"], plain["truncation"], plain["tools"]) == (1.0, 1.0, "auto", [])
    assert (plain["text"], plain["reasoning"], plain["metadata"]) == ({"format": {"type": "text"}}, None, {})
    asked = {
        "instructions": "Be kind.",
        "temperature": 0.5,
        "top_p": 0.25,
        "presence_penalty": 1,
        "frequency_penalty": -1,
        "truncation": "disabled",
        "metadata": {"a": "b"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "max_tool_calls": 2,
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "user": "u",
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
    }
    said = await answered(shim, **asked)
    expected = asked | {"reasoning": {"effort": "low", "summary": None}, "text": {"format": {"type": "text"}}}
    assert {name: said[name] for name in asked} == expected
    sent = shim.runtime.requests["Generate"][-1]
    assert (sent.temperature, sent.top_p, sent.presence_penalty, sent.frequency_penalty) == (0.5, 0.25, 1, -1)
    assert sent.max_tokens == 50


@pytest.mark.parametrize(
    ("fields", "on_overflow", "truncation"),
    [
        ({}, 1, "auto"),
        ({"truncation": "auto"}, 1, "auto"),
        ({"truncation": "disabled"}, 2, "disabled"),
        ({"truncation": "disabled", "kakeya": {"on_overflow": "evict"}}, 1, "auto"),
        ({"truncation": "disabled", "kakeya": {}}, 2, "disabled"),
    ],
)
async def test_what_happens_to_a_conversation_that_outgrows_its_session(
    shim: Shim, fields: dict[str, Any], on_overflow: int, truncation: str
) -> None:
    shim.will_say("Hi")
    assert (await answered(shim, **fields))["truncation"] == truncation
    assert shim.runtime.requests["CreateSession"][-1].on_overflow == on_overflow


@pytest.mark.parametrize(
    "conversation",
    [
        "Hello",
        [user("Hello")],
        [{"type": "message", **user("Hello")}],
        [{"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}],
        [{"type": "message", "id": "msg_1", "status": "completed", **user("Hello")}],
    ],
)
async def test_one_thing_said_in_many_ways(shim: Shim, conversation: Any) -> None:
    shim.will_say("Hi")
    await answered(shim, input=conversation)
    sent = list(shim.runtime.requests["AppendTokens"][-1].token_ids)
    assert sent == shim.tokenizer.prompt([{"role": "user", "content": "Hello"}])


async def test_several_parts(shim: Shim) -> None:
    shim.will_say("Hi", "Hi")
    await answered(shim, input=[{"role": "user", "content": [{"type": "input_text", "text": each} for each in "ab"]}])
    await shim.chat(messages=[{"role": "user", "content": [{"type": "text", "text": each} for each in "ab"]}])
    first, second = shim.runtime.requests["AppendTokens"]
    assert list(first.token_ids) == list(second.token_ids)


async def test_an_answer_of_a_given_length(shim: Shim) -> None:
    shim.will_say("Hi", "Hi")
    await answered(shim, logit_bias={"5": -100, "7": 1.5}, ignore_eos=True)
    await answered(shim)
    biased, plain = shim.runtime.requests["Generate"]
    assert (dict(biased.logit_bias), biased.ignore_eos, biased.max_tokens) == ({5: -100.0, 7: 1.5}, True, 50)
    assert (dict(plain.logit_bias), plain.ignore_eos) == ({}, False)


async def test_an_answer_that_is_cut(shim: Shim) -> None:
    shim.will_say("cut", "cut", ends=False)
    response = await answered(shim, max_output_tokens=3)
    assert (response["status"], response["completed_at"]) == ("incomplete", None)
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert (response["output"][0]["status"], texts(response)) == ("incomplete", ["cut"])
    streamed = put_together(await events(shim, max_output_tokens=3))
    assert (streamed["status"], streamed["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


async def test_an_answer_that_fills_its_session(shim: Shim) -> None:
    done = pb.GenerateDone(stop_reason=pb.STOP_REASON_TRUNCATED, history_length=40)
    shim.runtime.unusual_responses = [pb.GenerateResponse(done=done)]
    response = await answered(shim, truncation="disabled")
    assert response["incomplete_details"] == {"reason": "model_context_window_exceeded"}


async def test_an_answer_that_says_nothing_is_an_empty_message(shim: Shim) -> None:
    shim.will_say("", "")
    assert texts(await answered(shim)) == [""]
    assert texts(put_together(await events(shim))) == [""]


async def test_json(shim: Shim) -> None:
    shim.will_say("{}", '{"a": 1}', "{}")
    assert (await answered(shim, text={"format": {"type": "json_object"}}))["text"] == {
        "format": {"type": "json_object"}
    }
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"type": "json_schema", "name": "answer", "schema": schema, "strict": False, "description": "d"}
    response = await answered(shim, text={"format": form})
    assert response["text"]["format"] == form | {"strict": True}
    assert shim.runtime.requests["Generate"][-1].grammar.json_schema
    anything = {"type": "json_schema", "name": "answer"}
    response = await answered(shim, text={"format": anything})
    assert response["text"]["format"] == anything | {"schema": None, "strict": True, "description": None}


async def test_what_is_not_answered(shim: Shim) -> None:
    nothing: list[Any] = [None, []]
    for conversation in nothing:
        response = await ask(shim, input=conversation, instructions="Be kind.")
        error = response.json()["error"]
        assert (response.status_code, error["param"], error["code"]) == (400, "input", "invalid_value")
    call = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
    error = (await ask(shim, input=[user("Hello"), call])).json()["error"]
    assert (error["param"], error["message"]) == (
        "input",
        "input: the last item calls a function; what that answered is to follow",
    )


async def test_a_client_that_leaves_while_it_sends(shim: Shim) -> None:
    head = f"POST {RESPONSES} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    _, writer = await asyncio.open_connection("127.0.0.1", shim.port)
    writer.write(f"{head}Content-Length: 99\r\n\r\n{{".encode())
    await writer.drain()
    writer.close()
    async with asyncio.timeout(60):
        while f'route="{RESPONSES}",status="disconnected"' not in (await shim.http.get("/metrics")).text:
            await asyncio.sleep(0.01)


def test_more_items_than_a_chat_may_have() -> None:
    given = ResponsesRequest.model_validate({"input": [user("a")] * MAX_MESSAGES, "instructions": "Be kind."})
    with pytest.raises(ApiError) as refused:
        chat_request(given)
    assert refused.value.status == 400
    one = ResponsesRequest.model_validate({"input": "a"})
    items = own_items(given)
    before = Stretch.of(items[1:])
    assert len(going_on(chat_request(one), one, [before], {}).messages) == MAX_MESSAGES
    with pytest.raises(ApiError) as too_many:
        going_on(chat_request(one), one, [before, Stretch.of(items[:1])], {})
    assert too_many.value.body() == refused.value.body()


def test_usage_is_told_where_the_answer_ends() -> None:
    writer = ResponsesWriter.of(ResponsesRequest.model_validate({"input": "a"}), "evict", stores=True)
    assert writer.usage(Heading("resp_1", 0, "counter", ""), []) == b""
