"""POST /v1/messages, streamed: put together it is what the whole answer says."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kakeya._transport import _retry
from kakeya_http_shim.answers.writer import Heading
from kakeya_http_shim.messages_api.answer_events import STREAM_EVENTS
from kakeya_http_shim.messages_api.messages_request import MessagesRequest
from kakeya_http_shim.messages_api.messages_writer import MessagesWriter
from tests.unit.http_shim.messages_api.asking import MESSAGES, ask, events, named, put_together
from tests.unit.http_shim.shim import HELLO, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails

BY_TYPE = {event.model_fields["type"].default: event for event in STREAM_EVENTS}


async def test_its_events(shim: Shim) -> None:
    shim.will_say("Hé!")
    told = await events(shim)
    for event in told:
        BY_TYPE[event["type"]].model_validate(event, strict=True)
    kinds = [event["type"] for event in told]
    assert kinds == [
        *("message_start", "content_block_start"),
        *["content_block_delta"] * 3,
        *("content_block_stop", "message_delta", "message_stop"),
    ]
    start, block, *_ = told
    assert start["message"]["content"] == []
    assert (start["message"]["stop_reason"], start["message"]["usage"]["output_tokens"]) == (None, 0)
    assert start["message"]["usage"]["input_tokens"] == told[-2]["usage"]["input_tokens"]
    assert (block["index"], block["content_block"]) == (0, {"type": "text", "text": ""})
    assert [event["delta"]["text"] for event in told if event["type"] == "content_block_delta"] == ["H", "é", "!"]


@pytest.mark.parametrize(
    ("said", "fields"),
    [
        ("Hi there!", {}),
        ("", {}),
        ("one two", {"stop_sequences": ["tw"]}),
        ("cut", {"max_tokens": 3}),
        ("Hi", {"context_management": {"edits": []}}),
    ],
)
async def test_put_together_it_is_the_whole_answer(shim: Shim, said: str, fields: dict[str, Any]) -> None:
    shim.will_say(said, said)
    whole = (await ask(shim, **fields)).json()
    message = put_together(await events(shim, **fields))
    assert message.pop("id") != whole.pop("id")
    assert message == whole


def test_usage_is_told_where_the_answer_ends() -> None:
    given = MessagesRequest.model_validate({"messages": HELLO, "max_tokens": 1})
    assert MessagesWriter(given).usage(Heading("msg_1", 0, "counter", ""), []) == b""


async def test_a_failure_before_the_first_event_has_a_status(shim: Shim) -> None:
    shim.runtime.before["Generate"].append(fails("WORKER_LOST"))
    response = await ask(shim, stream=True)
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert response.json()["error"]["type"] == "overloaded_error"


async def test_a_failure_in_mid_stream_is_an_error_event(shim: Shim) -> None:
    shim.will_say("Hi", ends=False)
    shim.runtime.after["Generate"].append(fails("WORKER_LOST"))
    *told, last = await events(shim, max_tokens=2)
    assert told[0]["type"] == "message_start"
    assert {event["type"] for event in told} < BY_TYPE.keys()
    assert last.keys() == {"type", "error", "request_id"}
    assert (last["type"], last["error"]["type"]) == ("error", "overloaded_error")


async def test_signs_of_life(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.hold_after = 0
    async with serving_shim(runtime, tokenizer_dir, "--keep-alive-comment-seconds", "0.05") as shim:
        body = {"messages": HELLO, "max_tokens": 5, "stream": True}
        said = ""
        async with shim.http.stream("POST", MESSAGES, json=body) as response:
            async for piece in response.aiter_text():
                said += piece
                if said.count('data: {"type":"ping"}\n\n') == 3:
                    break
        told = named(said[: said.rindex("\n\n") + 2])
        assert [event["type"] for event in told[:4]] == ["message_start", "ping", "ping", "ping"]
        await shim.nothing_left()


async def test_a_failure_after_a_sign_of_life_is_an_error_event(
    runtime: ScriptedRuntime, tokenizer_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_retry, "_FIRST_BACKOFF_SECONDS", 0.001)  # the runtime does not come back
    runtime.hold_after = 0
    async with serving_shim(runtime, tokenizer_dir, "--keep-alive-comment-seconds", "0.05") as shim:
        body = {"messages": HELLO, "max_tokens": 5, "stream": True}
        said, is_stopped = "", False
        async with shim.http.stream("POST", MESSAGES, json=body) as response:
            async for piece in response.aiter_text():
                said += piece
                if "ping" in said and not is_stopped:
                    is_stopped = True
                    runtime.sessions.clear()
                    await asyncio.to_thread(runtime.stop)
        told = named(said)
        assert (told[0]["type"], told[-1]["type"]) == ("message_start", "error")
