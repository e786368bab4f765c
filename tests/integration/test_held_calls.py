"""Calls that are held, of kakeya-nano, which has not learned to call: whatever it draws, they are valid ones."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import openai
import pytest
from openai.types.chat import ChatCompletionMessage
from tokenizers import Tokenizer

from kakeya_http_shim.tools.families import SYNTAXES
from kakeya_shared import installed_models
from tests.integration.calling_stack import base_url, calling_stack
from tests.integration.open_http import MODEL
from tests.integration.processes import Runtime

_NUM_SEEDS = 8
_MAX_TOKENS = 160
BOOK: dict[str, Any] = {
    "type": "object",
    "properties": {
        "class": {"type": "string", "enum": ["first", "second"]},
        "seats": {"type": "integer", "minimum": 1, "maximum": 99},
        "days": {"type": "array", "items": {"$ref": "#/$defs/Day"}, "maxItems": 2},
    },
    "required": ["class", "seats"],
    "additionalProperties": False,
    "$defs": {"Day": {"type": "string", "enum": ["mon", "tue"]}},
}
PAY: dict[str, Any] = {
    "type": "object",
    "properties": {"is_cash": {"type": "boolean"}},
    "required": ["is_cash"],
    "additionalProperties": False,
}
SCHEMAS = {"book": BOOK, "pay": PAY}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()
]
STRICT: list[Any] = [{**tool, "function": {**tool["function"], "strict": True}} for tool in TOOLS]
CHOICES: Any = ("auto", "required")
NAMED: Any = {"type": "function", "function": {"name": "pay"}}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with calling_stack(tmp_path_factory.mktemp("held")) as stack:
        yield stack


def client_of(made: Runtime, family: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=base_url(made, family), api_key="none", max_retries=0)


def checked(message: ChatCompletionMessage) -> list[str]:
    """The names of its calls, which are valid ones."""
    calls = [call.function for call in message.tool_calls or () if call.type == "function"]
    for call in calls:
        jsonschema_rs.validate(SCHEMAS[call.name], json.loads(call.arguments))
    return [call.name for call in calls]


@pytest.mark.parametrize("family", sorted(SYNTAXES))
def test_whatever_is_drawn_is_a_call(made: Runtime, family: str) -> None:
    num_ended, num_named, names = 0, 0, set[str]()
    with client_of(made, family) as client:
        for seed in range(_NUM_SEEDS):
            for choice in ("required", NAMED):
                answer = client.chat.completions.create(
                    model=MODEL,
                    messages=[{"role": "user", "content": "Book a seat."}],
                    tools=TOOLS,
                    tool_choice=choice,
                    parallel_tool_calls=choice != NAMED,
                    temperature=1.0,
                    seed=seed,
                    max_tokens=_MAX_TOKENS,
                )
                (said,) = answer.choices
                called = checked(said.message)
                names |= {*called}
                if answer.usage is not None and answer.usage.completion_tokens < _MAX_TOKENS:
                    num_ended += 1
                    assert (bool(called), said.message.content, said.finish_reason) == (True, None, "tool_calls")
                    if choice == NAMED:
                        num_named += 1
                        assert called == ["pay"]
    assert num_named == _NUM_SEEDS, "a short call ends"
    assert num_ended >= 1.5 * _NUM_SEEDS
    assert names == {"book", "pay"}


QUESTIONS = ("A ticket!", "Wer bist du?", '{"name": "pay"', "Once upon a time", "What do you know of Rome?", "<tool_")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("family", sorted(SYNTAXES))
def test_without_a_call_an_answer_is_what_it_is_without_strict_tools(
    made: Runtime, family: str, temperature: float
) -> None:
    """To the token, and with the same likelihoods: a grammar of text lets all of it come."""
    with client_of(made, family) as client:
        for seed, question in enumerate(QUESTIONS):
            free, held = (
                client.chat.completions.create(
                    model=MODEL,
                    messages=[{"role": "user", "content": question}],
                    tools=tools,
                    temperature=temperature,
                    seed=seed,
                    max_tokens=64,
                    logprobs=True,
                )
                for tools in (TOOLS, STRICT)
            )
            assert free.choices[0].message.tool_calls is None
            assert held.choices == free.choices
            assert held.usage is not None
            assert free.usage is not None
            assert held.usage.completion_tokens == free.usage.completion_tokens


@pytest.mark.parametrize("family", ["hermes", "qwen3-xml"])
def test_behind_a_mark_whatever_is_drawn_is_a_call(made: Runtime, family: str) -> None:
    """A bias makes each answer begin with the mark, which is a token."""
    tokenizer = Tokenizer.from_file(str(installed_models.directory(MODEL) / "tokenizer.json"))
    num_ended, names = 0, set[str]()
    with client_of(made, family) as client:
        for seed in range(2 * _NUM_SEEDS):
            (said,) = client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": "A ticket!"}],
                tools=STRICT,
                parallel_tool_calls=False,
                logit_bias={str(tokenizer.token_to_id("<tool_call>")): 100},
                temperature=1.0,
                seed=seed,
                max_tokens=_MAX_TOKENS,
            ).choices
            called = checked(said.message)
            if said.finish_reason != "length":
                assert (len(called), said.message.content, said.finish_reason) == (1, None, "tool_calls")
                num_ended += 1
                names |= {*called}
    assert num_ended >= 1.5 * _NUM_SEEDS
    assert names == {"book", "pay"}


def test_a_schema_that_cannot_be_held_is_named(made: Runtime) -> None:
    """In the words of the library, whichever way the call is held."""
    bad: Any = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {"not": {"type": "null"}}}}
    for family in sorted(SYNTAXES):
        if family == "qwen3-xml":  # it has no place for what is said of all arguments together
            bad["function"]["parameters"] = {"properties": {"a": {"not": {"type": "null"}}}}
        with client_of(made, family) as client:
            for choice in CHOICES:
                with pytest.raises(openai.BadRequestError) as caught:
                    client.chat.completions.create(
                        model=MODEL,
                        messages=[{"role": "user", "content": "A ticket!"}],
                        tools=[*TOOLS, bad],
                        tool_choice=choice,
                    )
                assert caught.value.param == "tools[2].function.parameters"
                assert 'Unimplemented keys: ["not"]' in caught.value.message
