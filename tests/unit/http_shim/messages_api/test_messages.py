"""POST /v1/messages, whole."""

import asyncio
import re
from typing import Any

import pytest

from kakeya_http_shim.messages_api.answer_events import MessageAnswer
from kakeya_stubs.v1 import runtime_pb2 as pb
from tests.unit.http_shim.messages_api.asking import ask
from tests.unit.http_shim.shim import HELLO, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

RENDERED = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


def prompt(shim: Shim) -> str:
    """Of the last request, control tokens in their spelling."""
    request = shim.runtime.requests["AppendTokens"][-1]
    return shim.tokenizer.decode(list(request.token_ids), special_tokens=True)


async def test_an_answer(shim: Shim) -> None:
    shim.will_say("Hi!")
    response = await ask(shim)
    answer = response.json()
    assert re.fullmatch(r"msg_[0-9a-f]{32}", answer.pop("id"))
    num_prompt, num_answer = len(shim.tokens(RENDERED)), len(shim.tokens("Hi!")) + 1
    sight = answer["usage"].pop("kakeya")
    assert answer == {
        "type": "message",
        "role": "assistant",
        "model": "counter",
        "content": [{"type": "text", "text": "Hi!"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": num_prompt,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": num_answer,
        },
    }
    assert sight["history"] == num_prompt + num_answer
    assert response.headers["request-id"] == response.headers["x-request-id"]
    MessageAnswer.model_validate_json(response.content, strict=True)
    assert prompt(shim) == RENDERED


@pytest.mark.parametrize(
    ("fields", "said", "reason"),
    [
        ({"max_tokens": 2}, "Hi", "max_tokens"),
        ({"stop_sequences": ["tw", "!"]}, "one ", "stop_sequence"),
        ({"stop_sequences": []}, "one two", "end_turn"),
    ],
)
async def test_how_it_stops(shim: Shim, fields: dict[str, Any], said: str, reason: str) -> None:
    shim.will_say("Hi" if "max_tokens" in fields else "one two")
    answer = (await ask(shim, **fields)).json()
    assert (answer["content"], answer["stop_reason"]) == ([{"type": "text", "text": said}], reason)
    assert answer["stop_sequence"] == ("tw" if reason == "stop_sequence" else None)
    await shim.nothing_left()


async def test_a_session_that_refuses_to_forget_is_full(shim: Shim) -> None:
    done = pb.GenerateDone(stop_reason=pb.STOP_REASON_TRUNCATED, history_length=40)
    shim.runtime.unusual_responses = [pb.GenerateResponse(done=done)]
    answer = (await ask(shim, kakeya={"on_overflow": "refuse"})).json()
    assert answer["stop_reason"] == "model_context_window_exceeded"


async def test_an_answer_of_nothing(shim: Shim) -> None:
    shim.will_say("")
    answer = (await ask(shim)).json()
    assert (answer["content"], answer["stop_reason"]) == ([], "end_turn")


async def test_what_is_told_of_sampling(shim: Shim) -> None:
    await ask(shim, max_tokens=3, temperature=0.5, top_p=0.25, top_k=7)
    (asked,) = shim.runtime.requests["Generate"]
    assert (asked.max_tokens, asked.temperature, asked.top_p, asked.top_k) == (3, 0.5, 0.25, 7)
    await ask(shim, max_tokens=1)
    assert shim.runtime.requests["Generate"][1].temperature == 1, "as in Anthropic's API"


@pytest.mark.parametrize(
    "system",
    ["Be kind.", [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral", "scope": "global"}}]],
)
async def test_a_system_prompt_is_pinned(shim: Shim, system: Any) -> None:
    await ask(shim, system=system, max_tokens=1)
    head = "<|im_start|>system\nBe kind.<|im_end|>\n"
    assert prompt(shim) == head + RENDERED
    assert shim.runtime.requests["CreateSession"][0].pin == len(shim.tokens(head))


async def test_the_last_message_of_the_assistant_is_gone_on_with(shim: Shim) -> None:
    shim.will_say(" fine.")
    answer = await ask(shim, messages=[*HELLO, {"role": "assistant", "content": "I am"}])
    assert prompt(shim) == RENDERED + "I am"
    assert answer.json()["content"] == [{"type": "text", "text": " fine."}]


@pytest.mark.parametrize(
    "content", ["", [], [{"type": "text", "text": ""}] * 2, [{"type": "redacted_thinking", "data": "x"}]]
)
async def test_a_last_message_without_text_is_as_good_as_none(shim: Shim, content: Any) -> None:
    await ask(shim, messages=[*HELLO, {"role": "assistant", "content": content}], max_tokens=1)
    assert prompt(shim) == RENDERED


async def test_a_model_by_another_name(runtime: ScriptedRuntime, tokenizer_dir: Any) -> None:
    async with serving_shim(runtime, tokenizer_dir, "--model-alias", "claude-*=counter") as shim:
        shim.will_say("Hi!")
        assert (await ask(shim, model="claude-opus-9")).json()["model"] == "claude-opus-9"
        assert (await ask(shim, model="gpt-9")).status_code == 404


async def test_the_edits_of_a_context_that_were_applied(shim: Shim) -> None:
    edits = {"edits": [{"type": "clear_tool_uses_20250919"}]}
    assert (await ask(shim, context_management=edits, max_tokens=1)).json()["context_management"] == {
        "applied_edits": []
    }


async def test_betas_that_do_nothing_are_named(shim: Shim) -> None:
    headers = {"anthropic-beta": "claude-code-20250219, files-api-2025-04-14,pdfs-2024-09-25"}
    response = await shim.http.post(
        "/v1/messages?beta=true", json={"messages": HELLO, "max_tokens": 1}, headers=headers
    )
    assert response.status_code == 200
    assert response.headers["kakeya-ignored-betas"] == "files-api-2025-04-14, pdfs-2024-09-25"
    assert "kakeya-ignored-betas" not in (await ask(shim, max_tokens=1)).headers


async def test_without_the_prefix_of_a_version(shim: Shim) -> None:
    body = {"messages": HELLO, "max_tokens": 1}
    assert (await shim.http.post("/messages/", json=body)).json()["type"] == "message"
    assert "input_tokens" in (await shim.http.post("/messages/count_tokens", json={"messages": HELLO})).json()


async def test_a_client_that_leaves_while_it_sends(shim: Shim) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", shim.port)
    head = (
        "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
    )
    writer.write(head.encode())
    await writer.drain()
    writer.close()
    async with asyncio.timeout(60):
        while 'route="/v1/messages",status="disconnected"' not in (await shim.http.get("/metrics")).text:
            await asyncio.sleep(0.01)
