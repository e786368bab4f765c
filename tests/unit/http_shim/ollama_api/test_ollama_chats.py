"""Chats of Ollama's API, plain and streamed."""

import asyncio
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kakeya_http_shim.ollama_api.answer_lines import ChatLine
from kakeya_http_shim.ollama_api.ollama_requests import OllamaChatRequest
from kakeya_http_shim.ollama_api.ollama_writer import OllamaWriter
from tests.unit.http_shim.ollama_api.asking import ask, lines, put_together, read
from tests.unit.http_shim.shim import HELLO, MODEL, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
PROMPT = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


async def test_a_whole_answer(shim: Shim) -> None:
    shim.will_say("Hi.")
    answer = (await ask(shim)).json()
    ChatLine.model_validate(answer, strict=True)
    assert answer["message"] == {"role": "assistant", "content": "Hi."}
    assert (answer["model"], answer["done"], answer["done_reason"]) == (MODEL, True, "stop")
    assert (answer["prompt_eval_count"], answer["eval_count"]) == (len(shim.tokens(PROMPT)), 4)
    assert datetime.fromisoformat(answer["created_at"]).tzinfo is not None
    parts = [answer[name] for name in DURATIONS]
    assert all(isinstance(part, int) for part in parts)
    assert parts[0] == sum(parts[1:]) > 0


async def test_a_stream_says_what_the_whole_answer_says(shim: Shim) -> None:
    shim.will_say("Hi.", "Hi.")
    whole = (await ask(shim)).json()
    told = await lines(shim)
    for line in told:
        ChatLine.model_validate(line, strict=True)
    assert [line["message"]["content"] for line in told] == ["H", "i", ".", ""]
    assert all("eval_count" not in line and "done_reason" not in line for line in told[:-1])
    streamed = put_together(told)
    for name in ("message", "model", "done_reason", "prompt_eval_count", "eval_count"):
        assert streamed[name] == whole[name]
    assert streamed["kakeya"]["history"] == whole["kakeya"]["history"]


async def test_an_answer_that_is_cut(shim: Shim) -> None:
    shim.will_say("Hello.", "Hello.")
    whole = (await ask(shim, options={"num_predict": 2})).json()
    assert (whole["message"]["content"], whole["done_reason"], whole["eval_count"]) == ("He", "length", 2)
    assert put_together(await lines(shim, options={"num_predict": 2}))["done_reason"] == "length"


async def test_a_stop_text(shim: Shim) -> None:
    shim.will_say("one two three", ends=False)
    answer = (await ask(shim, options={"stop": ["two"]})).json()
    assert (answer["message"]["content"], answer["done_reason"]) == ("one ", "stop")


async def test_options_are_told_to_the_runtime(shim: Shim) -> None:
    options = {
        "temperature": 0,
        "top_k": 7,
        "top_p": 0.5,
        "min_p": 0.25,
        "repeat_penalty": 1.5,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "seed": 5,
        "num_predict": 3,
        "num_ctx": 100_000,
        "mirostat": 0,
        "numa": False,
        "typical_p": 1.0,
    }
    await ask(shim, options=options)
    given = shim.runtime.requests["Generate"][-1]
    assert (given.temperature, given.top_k, given.top_p, given.min_p) == (0, 7, 0.5, 0.25)
    assert (given.repetition_penalty, given.presence_penalty, given.frequency_penalty) == (1.5, 0.5, -0.5)
    assert (given.seed, given.max_tokens) == (5, 3)


@pytest.mark.parametrize("options", [None, {}, {"seed": -1, "num_predict": -1}, {"seed": None, "num_predict": 0}])
async def test_what_is_not_given_is_as_ollama_has_it(
    runtime: ScriptedRuntime, tokenizer_dir: Path, options: Any
) -> None:
    async with serving_shim(runtime, tokenizer_dir, "--default-max-tokens", "9") as shim:
        await ask(shim, options=options)
    given = runtime.requests["Generate"][-1]
    assert (round(given.temperature, 6), given.top_k, round(given.top_p, 6)) == (0.8, 40, 0.9)
    assert (given.max_tokens, given.HasField("seed"), given.HasField("min_p")) == (9, False, False)


@pytest.mark.parametrize("name", [MODEL, f"{MODEL}:latest"])
async def test_a_name_may_have_ollamas_tag(shim: Shim, name: str) -> None:
    assert (await ask(shim, model=name)).json()["model"] == name
    for line in await lines(shim, model=name):
        assert line["model"] == name


@pytest.mark.parametrize("form", ["json", {"type": "object", "properties": {"a": {"type": "integer"}}}])
async def test_forms(shim: Shim, form: Any) -> None:
    await ask(shim, format=form)
    schema = json.loads(shim.runtime.requests["Generate"][-1].grammar.json_schema)
    assert schema == ({"type": "object"} if form == "json" else form)
    await ask(shim, format="")
    assert not shim.runtime.requests["Generate"][-1].HasField("grammar")


@pytest.mark.parametrize(
    ("fields", "refuses"),
    [({"truncate": False}, True), ({"shift": False}, True), ({"truncate": True, "shift": True}, False), ({}, False)],
)
async def test_what_does_not_fit(shim: Shim, fields: dict[str, bool], refuses: bool) -> None:
    await ask(shim, **fields)
    opened = shim.runtime.requests["CreateSession"][-1]
    assert ("REFUSE" in str(opened)) == refuses
    await ask(shim, **fields, kakeya={"on_overflow": "evict"})
    assert "REFUSE" not in str(shim.runtime.requests["CreateSession"][-1])


async def test_log_probabilities(shim: Shim) -> None:
    shim.will_say("Hi.", "Hi.", "Hi.")
    whole = (await ask(shim, logprobs=True, top_logprobs=2)).json()
    assert [each["token"] for each in whole["logprobs"]] == ["H", "i", "."]
    assert all(each["bytes"] and len(each["top_logprobs"]) == 2 for each in whole["logprobs"])
    streamed = put_together(await lines(shim, logprobs=True, top_logprobs=2))
    assert streamed["logprobs"] == whole["logprobs"]
    alone = (await ask(shim, logprobs=True)).json()["logprobs"]
    assert all("top_logprobs" not in each for each in alone)


async def test_the_last_message_is_gone_on_with(shim: Shim) -> None:
    shim.will_say(" fine.")
    messages = [*HELLO, {"role": "assistant", "content": "I am"}]
    assert (await ask(shim, messages=messages)).json()["message"]["content"] == " fine."
    written = shim.tokenizer.decode(list(shim.runtime.requests["AppendTokens"][-1].token_ids), special_tokens=True)
    assert written == f"{PROMPT}I am"


async def test_without_messages_the_model_is_loaded(shim: Shim) -> None:
    asked: list[dict[str, Any]] = [
        {"messages": []},
        {"messages": None},
        {"messages": [], "keep_alive": 0, "stream": True},
    ]
    for fields in asked:
        response = await ask(shim, **fields)
        answer = response.json()
        assert response.headers["content-type"] == "application/json"
        assert (answer["done"], answer["done_reason"]) == (True, "load")
        assert answer["message"] == {"role": "assistant", "content": ""}
    assert "Turn" not in shim.runtime.calls
    assert (await ask(shim, messages=[], model="other")).status_code == 404


async def test_a_silent_stream_lives(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.token_seconds = 0.2
    async with serving_shim(runtime, tokenizer_dir, "--keep-alive-comment-seconds", "0.05") as shim:
        shim.will_say("Hi.")
        told = await lines(shim)
        assert len(told) > len("Hi.") + 1
        assert put_together(told)["message"]["content"] == "Hi."
        await shim.nothing_left()


async def test_a_failure_within_a_stream(shim: Shim) -> None:
    shim.runtime.hold_after = 1
    holds = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold() -> None:
        loop.call_soon_threadsafe(holds.set)

    shim.runtime.on_hold = hold
    body = {"model": MODEL, "messages": HELLO}
    async with shim.http.stream("POST", "/api/chat", json=body) as response:
        await holds.wait()
        shim.stop.set()
        text = (await response.aread()).decode()
    *said, last = text.splitlines()
    assert last.startswith('{"error":"this server is shutting down')
    assert read("\n".join([*said, '{"done":true}', ""]))


def test_a_sign_of_life_is_a_piece_that_says_nothing() -> None:
    given = OllamaChatRequest.model_validate({"model": MODEL, "messages": HELLO})
    (line,) = OllamaWriter(given).sign_of_life.splitlines()
    piece = ChatLine.model_validate_json(line)
    assert (piece.done, piece.message.content) == (False, "")
