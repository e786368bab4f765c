"""Loops with tools over a whole stack: the `openai` package calls, and the model says what a test has written.

Twenty turns, each continued, under templates of six models; whole answers through `create`, streams through the
package's own helper, which puts them together.
"""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.loops import played_verifier
from tests.loops.calls import TOOL_PARSERS, call_text, call_tokens
from tests.loops.families import FAMILIES, XML
from tests.loops.recorder import Exchange
from tests.loops.stage import Stage, stage

_WINDOW = 1024
_NUM_ROUNDS = 10
_MAX_TEMPLATE_TOKENS = 80
"""Around a result or a question, at most; Mistral's template writes the tools again before each question."""
_FAMILIES = (*(family for family in FAMILIES if family.name != "Gemma 3"), XML)
"""Those that take tools."""
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "How it will be",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city", "days"],
                "additionalProperties": False,
            },
        },
    }
]


@pytest.fixture(scope="module")
def made_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("stage"), _FAMILIES, _WINDOW, *TOOL_PARSERS) as made:
        yield made


@pytest.fixture
def client(made_stage: Stage) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=made_stage.base_url, api_key="none", max_retries=0) as made:
        yield made


def weather(family: str, *cities: str) -> str:
    """Calls that ask for it."""
    return call_text(family, *(("get_weather", {"city": city, "days": 2}) for city in cities))


def ask(client: openai.OpenAI, streams: bool, **fields: Any) -> Any:
    """The message of an answer, and how it ended."""
    if not streams:
        return client.chat.completions.create(**fields).choices[0]
    with client.chat.completions.stream(**fields) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        choice = stream.get_final_completion().choices[0]
    assert len(done) == len(choice.message.tool_calls or [])
    return choice


def check_continued(exchanges: list[Exchange]) -> None:
    first, *later = exchanges
    assert (first.state, first.why) in (("new", "first-turn"), ("forked", "head")), "tools are a head that others share"
    assert [(each.state, each.why) for each in later] == [("continued", "next-turn")] * len(later)
    assert len({each.session["id"] for each in exchanges}) == 1


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streams"])
@pytest.mark.parametrize("name", [family.name for family in _FAMILIES])
def test_a_loop(made_stage: Stage, client: openai.OpenAI, name: str, streams: bool) -> None:
    model = made_stage.models[name]
    said = [text for number in range(_NUM_ROUNDS) for text in (weather(name, f"Zürich {number}"), f"It is {number}.")]
    answers = [call_tokens(model, text) for text in said]
    played_verifier.play(model.folder, answers)
    made_stage.recorder.take()
    messages: list[Any] = [{"role": "system", "content": "Be brief."}]
    told: dict[str, Any] = {"model": model.family.model, "messages": messages, "tools": TOOLS, "max_tokens": 400}
    for number in range(_NUM_ROUNDS):
        messages.append({"role": "user", "content": f"{streams}: how is Zürich {number}?"})
        called = ask(client, streams, **told)
        (call,) = called.message.tool_calls
        assert (called.finish_reason, called.message.content) == ("tool_calls", None)
        assert call.function.name == "get_weather"
        assert json.loads(call.function.arguments) == {"city": f"Zürich {number}", "days": 2}
        messages += [called.message, {"role": "tool", "tool_call_id": call.id, "content": f"{number} degrees"}]
        answered = ask(client, streams, **told)
        assert (answered.finish_reason, answered.message.content) == ("stop", f"It is {number}.")
        assert not answered.message.tool_calls
        messages.append(answered.message)
    exchanges = made_stage.recorder.take()
    check_continued(exchanges)
    for before, exchange, answer in zip(exchanges, exchanges[1:], answers, strict=False):
        assert exchange.num_reused == before.num_reused + before.num_appended + len(answer)
        if exchange.body["messages"][-1]["role"] == "tool":
            assert exchange.num_appended <= _MAX_TEMPLATE_TOKENS, "a result, and nothing that was there"


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streams"])
@pytest.mark.parametrize("name", ["Qwen3", "Mistral"])
def test_several_calls_at_once(made_stage: Stage, client: openai.OpenAI, name: str, streams: bool) -> None:
    model = made_stage.models[name]
    cities = ["Bern", "Genève", "Lugano"]
    played_verifier.play(model.folder, [call_tokens(model, weather(name, *cities)), call_tokens(model, "Fine.")])
    made_stage.recorder.take()
    messages: list[Any] = [{"role": "user", "content": f"{streams}: how is it in {', '.join(cities)}?"}]
    told: dict[str, Any] = {"model": model.family.model, "messages": messages, "tools": TOOLS, "max_tokens": 600}
    called = ask(client, streams, **told)
    calls = called.message.tool_calls
    assert [json.loads(call.function.arguments)["city"] for call in calls] == cities
    messages.append(called.message)
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "5 degrees"} for call in calls]
    assert ask(client, streams, **told).message.content == "Fine."
    check_continued(made_stage.recorder.take())


def respond(client: openai.OpenAI, streams: bool, **fields: Any) -> Any:
    """A response."""
    if not streams:
        return client.responses.create(**fields)
    with client.responses.stream(**fields) as stream:
        return stream.get_final_response()


@pytest.mark.parametrize("by", ["id", "items"])
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streams"])
def test_a_loop_of_responses(made_stage: Stage, client: openai.OpenAI, streams: bool, by: str) -> None:
    model = made_stage.models["Qwen3"]
    said = [text for number in range(_NUM_ROUNDS) for text in (weather("Qwen3", f"Chur {number}"), f"It is {number}.")]
    played_verifier.play(model.folder, [call_tokens(model, text) for text in said])
    tools: list[Any] = [{"type": "function", **tool["function"]} for tool in TOOLS]
    told: dict[str, Any] = {"model": model.family.model, "tools": tools, "instructions": "Be brief."}
    conversation: list[Any] = []
    before, sessions = None, []
    for number in range(_NUM_ROUNDS):
        new: list[Any] = [{"role": "user", "content": f"{streams}, {by}: how is Chur {number}?"}]
        for is_result in (False, True):
            given = {"previous_response_id": before, "input": new} if by == "id" else {"input": [*conversation, *new]}
            response = respond(client, streams, **told, **given, max_output_tokens=400)
            sessions.append(response.usage.model_extra["kakeya"]["session"])
            conversation += [*new, *response.output]
            before = response.id
            if is_result:
                assert response.output_text == f"It is {number}."
            else:
                call = next(item for item in response.output if item.type == "function_call")
                assert json.loads(call.arguments) == {"city": f"Chur {number}", "days": 2}
                new = [{"type": "function_call_output", "call_id": call.call_id, "output": f"{number} degrees"}]
    assert [(each["state"], each["why"]) for each in sessions[1:]] == [("continued", "next-turn")] * len(sessions[1:])
    assert all(each["appended"] <= _MAX_TEMPLATE_TOKENS for each in sessions[1:])
