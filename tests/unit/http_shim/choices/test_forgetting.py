"""What is told of a list of tools and of tools' results, once tokens have been forgotten."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kakeya import GenerateResult, ServedModel, StopReason
from kakeya_http_shim.choices.forgetting import Watch
from kakeya_http_shim.models.model_tokenizer import ModelTokenizer
from kakeya_http_shim.models.served_models import TextModel
from kakeya_http_shim.requests.chat_request import ChatRequest
from tests.unit.http_shim.messages_api.asking import ask as ask_messages
from tests.unit.http_shim.ollama_api.asking import ask as ask_ollama
from tests.unit.http_shim.shim import HELLO, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.http_shim.tool_talk import OSLO, TOOLS, WEATHER, hermes
from tests.unit.sdk import families
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

FUNCTION = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
CALL = {"role": "assistant", "tool_calls": [{"id": "abcdefghi", "type": "function", "function": FUNCTION}]}
RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "content": "Sun"}
USED = [*HELLO, CALL, RESULT, {"role": "assistant", "content": "Sunny."}, {"role": "user", "content": "And?"}]


def model(folder: Path, template: str = "qwen2_5") -> TextModel:
    families.save(folder, families.ONES[template])
    return TextModel("m", ServedModel("m", 4096, 1000, True, ""), ModelTokenizer(str(folder)), "hermes")


def ended(*retained: range) -> GenerateResult:
    length = retained[-1].stop if retained else 0
    return GenerateResult(StopReason.EOS, 1, 0.0, 0.0, 0, "", 0, length, 0, retained)


def watch(model: TextModel, messages: list[Any], **fields: Any) -> Watch:
    found = Watch.of(ChatRequest.model_validate({"messages": messages, **fields}), model)
    assert found is not None
    return found


def lengths(model: TextModel, messages: list[Any], tools: Any = None) -> tuple[int, int]:
    """Tokens up to the first result, and of the head."""
    prompt = model.tokenizer.chat_prompt(messages, end="message", tools=tools)
    return len(prompt.token_ids), prompt.num_pinned


def test_a_chat_without_tools_is_not_watched(tmp_path: Path) -> None:
    assert Watch.of(ChatRequest.model_validate({"messages": HELLO, "tools": []}), model(tmp_path)) is None


async def test_where_nothing_is_forgotten(tmp_path: Path) -> None:
    served = model(tmp_path)
    nothing = ended(range(500))
    assert await watch(served, HELLO, tools=TOOLS).forgotten(0, nothing) == {"tools": False}
    assert await watch(served, USED).forgotten(0, None) == {"results": False}
    assert await watch(served, USED, tools=TOOLS).forgotten(0, nothing) == {"tools": False, "results": False}


async def test_what_is_forgotten_is_known_by_its_place(tmp_path: Path) -> None:
    served = model(tmp_path)
    watched = watch(served, USED, tools=[WEATHER])
    place, num_pinned = lengths(served, USED[:2], watched.tools)
    assert 0 < num_pinned < place
    cases = [
        (ended(range(num_pinned), range(place, 5000)), (False, False)),
        (ended(range(num_pinned), range(place - 1, 5000)), (False, False)),
        (ended(range(num_pinned), range(place + 1, 5000)), (False, True)),
        (ended(range(num_pinned - 1), range(place, 5000)), (True, False)),
        (ended(range(1, num_pinned), range(place, 5000)), (True, False)),
        (ended(range(num_pinned), range(place - 5, place + 5), range(4000, 5000)), (False, None)),
    ]
    for done, (tools, results) in cases:
        assert await watched.forgotten(done.num_forgotten_tokens or 0, done) == {"tools": tools, "results": results}


async def test_a_list_of_tools_before_any_result(tmp_path: Path) -> None:
    served = model(tmp_path)
    messages = [{"role": "system", "content": "Be kind."}, *HELLO]
    for given in (messages, messages[:1]):
        watched = watch(served, given, tools=[WEATHER])
        _, num_pinned = lengths(served, messages, watched.tools)
        done = ended(range(num_pinned), range(4000, 5000))
        assert await watched.forgotten(9, done) == {"tools": False}


async def test_what_is_not_known(tmp_path: Path) -> None:
    watched = watch(model(tmp_path), USED, tools=[WEATHER])
    unknown = {"tools": None, "results": None}
    assert await watched.forgotten(5, None) == unknown
    assert await watched.forgotten(5, ended()) == unknown
    assert await replace(watched, begins_with=[]).forgotten(5, ended(range(4), range(9, 20))) == unknown


async def test_thoughts_may_lie_before_a_result(tmp_path: Path) -> None:
    """They are in the history, and not among what is sent again."""
    served = model(tmp_path, "qwen3")
    watched = watch(served, USED, tools=[WEATHER])
    place, num_pinned = lengths(served, USED[:2], watched.tools)
    for start, results in ((place - 1, False), (place, False), (place + 1, None), (place + 4000, None)):
        done = ended(range(num_pinned), range(start, start + 5000))
        assert await watched.forgotten(5, done) == {"tools": False, "results": results}


async def test_a_template_that_writes_tools_further_down(tmp_path: Path) -> None:
    watched = watch(model(tmp_path, "mistral"), USED, tools=[WEATHER])
    told = await watched.forgotten(5, ended(range(4), range(4000, 5000)))
    assert told["tools"] is None


async def test_a_template_that_refuses_the_beginning(tmp_path: Path) -> None:
    watched = watch(model(tmp_path, "mistral"), [*HELLO, *HELLO, CALL, RESULT])
    assert await watched.forgotten(5, ended(range(4), range(4000, 5000))) == {"results": None}


@pytest.fixture
async def caller(roomy: ScriptedRuntime, tmp_path: Path) -> AsyncIterator[Shim]:
    families.save(tmp_path, families.ONES["qwen2_5"])
    async with serving_shim(roomy, tmp_path) as shim:
        yield shim


async def test_usage_tells_it_in_every_api(caller: Shim) -> None:
    """The runtime here pins nothing, and sees the last sixteen tokens."""
    both = {"tools": True, "results": True}
    chat = (await caller.chat(messages=USED, tools=TOOLS, max_tokens=3)).json()
    assert chat["usage"]["kakeya"]["forgotten"] == both
    more: dict[str, Any] = {"max_tokens": 3, "stream_options": {"include_usage": True}}
    *_, last, _ = await caller.events(messages=USED, tools=TOOLS, **more)
    assert last["usage"]["kakeya"]["forgotten"] == both
    tool = {"name": "get_time", "input_schema": {}}
    messages = (await ask_messages(caller, tools=[tool])).json()
    assert messages["usage"]["kakeya"]["forgotten"] == {"tools": True}
    ollama = (await ask_ollama(caller, tools=TOOLS[1:], options={"num_predict": 3})).json()
    assert ollama["kakeya"]["forgotten"] == {"tools": True}
    assert "forgotten" not in (await caller.chat(max_tokens=3)).json()["usage"]["kakeya"]


async def test_an_answer_that_was_stopped_does_not_know(caller: Shim) -> None:
    caller.will_say(f"{hermes('get_weather', OSLO)}\n{hermes('get_weather', OSLO)}")
    answer = (await caller.chat(tools=TOOLS, parallel_tool_calls=False)).json()
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert answer["usage"]["kakeya"]["forgotten"] == {"tools": None}
