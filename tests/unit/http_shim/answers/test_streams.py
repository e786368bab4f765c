"""Streams: the events of an answer as it comes."""

import asyncio
import time
from pathlib import Path

import grpc
import pytest
from starlette.types import Message

from kakeya._transport import _retry
from kakeya_http_shim.answers.reply import Reply
from tests.unit.http_shim.shim import CHAT, COMPLETIONS, HELLO, Shim, data
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails


async def test_a_chat(shim: Shim) -> None:
    shim.will_say("Hé!")
    *events, done = await shim.events()
    assert done == "[DONE]"
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas == [{"role": "assistant", "content": "H"}, {"content": "é"}, {"content": "!"}, {}]
    assert [event["choices"][0]["finish_reason"] for event in events] == [None, None, None, "stop"]
    assert {(event["id"], event["object"], event["model"]) for event in events} == {
        (events[0]["id"], "chat.completion.chunk", "counter")
    }
    assert not any("usage" in event for event in events)


async def test_an_empty_answer(shim: Shim) -> None:
    shim.will_say("")
    *events, _ = await shim.events()
    assert [event["choices"][0]["delta"] for event in events] == [{"role": "assistant", "content": ""}]


async def test_usage(shim: Shim) -> None:
    shim.will_say("Hi")
    *events, last, done = await shim.events(stream_options={"include_usage": True})
    assert done == "[DONE]"
    assert [event["usage"] for event in events] == [None] * len(events)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 3
    assert last["usage"]["kakeya"]["retained"] == 20


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_usage_in_every_event(shim: Shim, path: str) -> None:
    shim.will_say("Hi!")
    options = {"include_usage": True, "continuous_usage_stats": True}
    *events, last, _ = await shim.events(path, stream_options=options)
    num_prompt_tokens = len(shim.runtime.requests["AppendTokens"][0].token_ids)
    assert [event["usage"]["completion_tokens"] for event in events] == [1, 2, 3, 4]
    for event in events:
        usage = event["usage"]
        assert usage["total_tokens"] == usage["kakeya"]["history"] == num_prompt_tokens + usage["completion_tokens"]
        assert usage["kakeya"]["retained"] == min(20, usage["total_tokens"])
    assert last["choices"] == []
    assert last["usage"] == events[-1]["usage"]


async def test_usage_of_each_of_several_answers(shim: Shim) -> None:
    shim.will_say("One.", "Two!!")
    options = {"include_usage": True, "continuous_usage_stats": True}
    *events, last, _ = await shim.events(n=2, stream_options=options)
    ends = [event["usage"]["completion_tokens"] for event in events if event["choices"][0]["finish_reason"]]
    assert sorted(ends) == [5, 6]
    assert last["usage"]["completion_tokens"] == 11


async def test_several_answers(shim: Shim) -> None:
    shim.will_say("One.", "Two.")
    *events, last, _ = await shim.events(n=2, stream_options={"include_usage": True})
    texts = {0: "", 1: ""}
    roles = []
    for event in events:
        (choice,) = event["choices"]
        texts[choice["index"]] += choice["delta"].get("content", "")
        roles += [choice["index"]] * ("role" in choice["delta"])
    assert sorted(texts.values()) == ["One.", "Two."]
    assert roles == [0, 1], "each begins once, in their order"
    assert [event["choices"][0]["delta"] for event in events[:2]] == [{"role": "assistant", "content": ""}] * 2
    assert last["usage"]["completion_tokens"] == 10
    assert last["usage"]["prompt_tokens"] == len(shim.runtime.requests["AppendTokens"][0].token_ids), "counted once"


async def test_log_probabilities_come_with_their_text(shim: Shim) -> None:
    shim.will_say("Hé")
    *events, _ = await shim.events(logprobs=True, top_logprobs=1)
    logprobs = [event["choices"][0]["logprobs"] for event in events]
    assert [[entry["bytes"] for entry in each["content"]] for each in logprobs[:2]] == [[[0x48]], [[0xC3], [0xA9]]]


async def test_a_stop_text_is_held_back(shim: Shim) -> None:
    shim.will_say("one st, two stop three")
    *events, _ = await shim.events(stop="stop")
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in events) == "one st, two "
    await shim.nothing_left()


async def test_a_completion(shim: Shim) -> None:
    shim.will_say("Hé")
    *events, done = await shim.events(COMPLETIONS, stream_options={"include_usage": True})
    assert done == "[DONE]"
    assert [event["choices"][0]["text"] for event in events[:-1]] == ["H", "é", ""]
    assert [event["choices"][0]["finish_reason"] for event in events[:-1]] == [None, None, "stop"]
    assert (events[-1]["choices"], events[-1]["usage"]["completion_tokens"]) == ([], 4)


async def test_a_failure_before_the_first_event_has_a_status(shim: Shim) -> None:
    shim.runtime.before["Generate"].append(fails("WORKER_LOST"))
    response = await shim.chat(stream=True)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert response.json()["error"]["code"] == "worker_lost"


async def test_a_failure_in_mid_stream_is_an_error_event(shim: Shim) -> None:
    shim.will_say("Hi", ends=False)
    shim.runtime.after["Generate"].append(fails("WORKER_LOST"))
    *events, last = await shim.events(max_tokens=2)
    assert [event["choices"][0]["finish_reason"] for event in events] == [None, None]
    assert last["error"]["code"] == "worker_lost"


async def test_a_failure_of_one_of_several_answers(shim: Shim) -> None:
    shim.will_say("Hi", "Ho", ends=False)
    shim.runtime.after["Generate"].append(fails("WORKER_LOST"))
    *_, last = await shim.events(n=2, max_tokens=2)
    assert last["error"]["code"] == "worker_lost"


@pytest.mark.parametrize("hold_after", [0, 1], ids=["prefill", "pause"])
async def test_signs_of_life(runtime: ScriptedRuntime, tokenizer_dir: Path, hold_after: int) -> None:
    runtime.hold_after = hold_after
    async with serving_shim(runtime, tokenizer_dir, "--keep-alive-comment-seconds", "0.05") as shim:
        shim.will_say("Hi")
        async with shim.http.stream("POST", CHAT, json={"messages": HELLO, "stream": True}) as response:
            lines = response.aiter_lines()
            comments = 0
            async for line in lines:
                comments += line == ": keep-alive"
                if comments == 3:
                    break
        assert response.status_code == 200
        await shim.nothing_left()


async def test_the_first_token_begins_the_stream_though_its_text_is_held_back(
    runtime: ScriptedRuntime, tokenizer_dir: Path
) -> None:
    runtime.hold_after = 1
    async with serving_shim(runtime, tokenizer_dir, "--keep-alive-comment-seconds", "600") as shim:
        shim.will_say("Hi")
        question = {"messages": HELLO, "stream": True, "stop": ["Hiya"]}
        async with shim.http.stream("POST", CHAT, json=question) as response:
            assert response.status_code == 200
        await shim.nothing_left()


async def test_a_stream_may_begin_before_it_says_anything() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    reply = Reply({"path": CHAT}, send)
    await reply.stream(b"")
    assert [message["type"] for message in sent] == ["http.response.start"]
    assert reply.silent_seconds < 60  # it has just given a sign of life
    await reply.stream(b"", is_last=True)
    assert [message.get("more_body") for message in sent] == [None, False]


async def test_a_failure_after_a_sign_of_life_is_an_error_event(
    runtime: ScriptedRuntime, tokenizer_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_retry, "_FIRST_BACKOFF_SECONDS", 0.001)  # the runtime does not come back
    runtime.hold_after = 0
    async with serving_shim(runtime, tokenizer_dir, "--keep-alive-comment-seconds", "0.05") as shim:
        async with shim.http.stream("POST", CHAT, json={"messages": HELLO, "stream": True}) as response:
            lines = []
            async for line in response.aiter_lines():
                lines.append(line)
                if line == ": keep-alive":
                    runtime.sessions.clear()
                    await asyncio.to_thread(runtime.stop)
        assert response.status_code == 200
        assert data(lines)[-1]["error"]["type"] == "server_error"


async def test_no_sign_of_life_while_it_waits_for_a_session(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    def refuses_late(context: grpc.ServicerContext) -> None:
        time.sleep(0.3)
        fails("QUEUE_TIMED_OUT", retry_after_seconds=3)(context)

    runtime.before["CreateSession"].append(refuses_late)
    async with serving_shim(runtime, tokenizer_dir, "--keep-alive-comment-seconds", "0.05") as shim:
        response = await shim.chat(stream=True)
        assert (response.status_code, response.headers["retry-after"]) == (429, "3")


async def test_proxies_are_told_not_to_gather(shim: Shim) -> None:
    shim.will_say("Hi")
    response = await shim.chat(stream=True)
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-accel-buffering"] == "no"
