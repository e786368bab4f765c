"""Every field is honoured, or has no effect that anybody would miss, or is refused by name."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.requests.completion_request import CompletionRequest
from kakeya_http_shim.requests.fields import RequestModel, RuledModel
from kakeya_http_shim.routes.openapi.document import document
from tests.unit.http_shim.shim import HELLO, Shim

WITHOUT_EFFECT = {
    "user": "me",
    "metadata": {"a": "b"},
    "store": True,
    "service_tier": "auto",
    "modalities": ["text"],
    "prompt_cache_key": "a",
    "safety_identifier": "a",
    "cache_prompt": True,
    "keep_alive": "5m",
}


TOOL_CALL = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
PARSED = {"name": "add", "arguments": "{}", "parsed_arguments": {}}


def refusal(body: bytes) -> ApiError:
    with pytest.raises(ApiError) as raised:
        ChatRequest.read(body)
    return raised.value


async def test_what_has_no_effect(shim: Shim) -> None:
    shim.will_say("Hi!")
    assert (await shim.chat(**WITHOUT_EFFECT)).status_code == 200
    declared = {
        name
        for name, field in ChatRequest.model_fields.items()
        if isinstance(field.json_schema_extra, dict) and field.json_schema_extra["x-kakeya"] == "without effect"
    }
    assert declared == WITHOUT_EFFECT.keys()


@pytest.mark.parametrize("model", [ChatRequest, CompletionRequest])
def test_every_field_says_what_it_is(model: type[ChatRequest]) -> None:
    for name, field in model.model_fields.items():
        assert isinstance(field.json_schema_extra, dict), name
        assert field.description, name
    assert not model.refused.keys() & model.model_fields.keys()


def test_who_has_rules_obeys_them() -> None:
    document("0", max_choices=1)  # reads all models there are
    models = [*subclasses(RequestModel)]
    assert {each for each in models if hasattr(each, "rules")} == {*subclasses(RuledModel)}


def subclasses(model: type[RequestModel]) -> Iterator[type[RequestModel]]:
    for each in model.__subclasses__():
        yield each
        yield from subclasses(each)


@pytest.mark.parametrize("field", sorted(ChatRequest.refused))
async def test_what_is_not_served_is_refused_by_name(shim: Shim, field: str) -> None:
    response = await shim.chat(**{field: ["x"]})
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", field, "unsupported_parameter")
    assert (await shim.chat(**{field: None}, max_tokens=1)).status_code == 200, "null is not given"


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"temprature": 1}, "temprature", "unknown_parameter"),
        ({"temperature": "1"}, "temperature", "invalid_value"),
        ({"temperature": 2.1}, "temperature", "invalid_value"),
        ({"temperature": -0.1}, "temperature", "invalid_value"),
        ({"top_p": 0}, "top_p", "invalid_value"),
        ({"top_p": 1.1}, "top_p", "invalid_value"),
        ({"min_p": 2}, "min_p", "invalid_value"),
        ({"top_k": -1}, "top_k", "invalid_value"),
        ({"presence_penalty": 2.1}, "presence_penalty", "invalid_value"),
        ({"frequency_penalty": -2.1}, "frequency_penalty", "invalid_value"),
        ({"max_tokens": 0}, "max_tokens", "invalid_value"),
        ({"max_tokens": 1 << 32}, "max_tokens", "invalid_value"),
        ({"max_tokens": 8.5}, "max_tokens", "invalid_value"),
        ({"max_tokens": True}, "max_tokens", "invalid_value"),
        ({"max_tokens": "8"}, "max_tokens", "invalid_value"),
        ({"top_k": 1e300}, "top_k", "invalid_value"),
        ({"n": 0}, "n", "invalid_value"),
        ({"n": 9}, "n", "invalid_value"),
        ({"n": True}, "n", "invalid_value"),
        ({"seed": 1 << 63}, "seed", "invalid_value"),
        ({"seed": 1.5}, "seed", "invalid_value"),
        ({"stop": ["a"] * 17}, "stop", "invalid_value"),
        ({"stop": ""}, "stop", "invalid_value"),
        ({"stop": ["a", 5]}, "stop[1]", "invalid_value"),
        ({"top_logprobs": 1}, "top_logprobs", "invalid_value"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value"),
        ({"logit_bias": {"a": 1}}, "logit_bias.a", "invalid_value"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1", "invalid_value"),
        ({"logit_bias": {"1000": 1}}, "logit_bias", "invalid_value"),
        ({"logit_bias": {str(number): 1 for number in range(1025)}}, "logit_bias", "invalid_value"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
        ({"stream_options": {"continuous_usage_stats": True}, "stream": True}, "stream_options.continuous", "invalid"),
        ({"store": 0}, "store", "invalid_value"),
        ({"keep_alive": True}, "keep_alive", "invalid_value"),
        ({"service_tier": "flux"}, "service_tier", "invalid_value"),
        ({"response_format": {"type": "jsn"}}, "response_format.type", "invalid_value"),
        ({"response_format": "json_object"}, "response_format", "invalid_value"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "missing_required_parameter"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {}}},
            "response_format.json_schema.name",
            "missing",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": []}}},
            "response_format.json_schema.schema",
            "invalid_value",
        ),
        ({"response_format": {"type": "json_object"}, "kakeya": {"regex": "a"}}, "response_format", "invalid_value"),
        ({"kakeya": {"regex": "a", "choice": ["b"]}}, "kakeya.choice", "invalid_value"),
        ({"kakeya": {"regex": ""}}, "kakeya.regex", "invalid_value"),
        ({"kakeya": {"choice": []}}, "kakeya.choice", "invalid_value"),
        ({"kakeya": {"choice": [""]}}, "kakeya.choice[0]", "invalid_value"),
        ({"repetition_penalty": 0}, "repetition_penalty", "invalid_value"),
        ({"repetition_penalty": 2.1}, "repetition_penalty", "invalid_value"),
        ({"min_tokens": -1}, "min_tokens", "invalid_value"),
        ({"min_tokens": 3, "max_tokens": 2}, "min_tokens", "invalid_value"),
        ({"min_tokens": 5000}, "min_tokens", "invalid_value"),
        ({"stop_token_ids": [1] * 17}, "stop_token_ids", "invalid_value"),
        ({"stop_token_ids": [1000]}, "stop_token_ids", "invalid_value"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]", "invalid_value"),
        ({"ignore_eos": 1}, "ignore_eos", "invalid_value"),
        ({"kakeya": {"on_overflow": "forget"}}, "kakeya.on_overflow", "invalid_value"),
        ({"kakeya": {"sink": 4}}, "kakeya.sink", "unknown_parameter"),
        ({"model": ""}, "model", "invalid_value"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "missing_required_parameter"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", "invalid_value"),
        ({"tools": [{"type": "function", "function": {"name": "a", "schema": {}}}]}, "tools[0].function.schema", "unk"),
        ({"tool_choice": "any"}, "tool_choice", "invalid_value"),
        ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
        ({"tool_choice": {"type": "function", "function": {"name": "a"}}}, "tool_choice", "invalid_value"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.function", "missing_required_parameter"),
        ({"messages": "Hello"}, "messages", "invalid_value"),
        ({"messages": ["Hello"]}, "messages[0].role", "invalid_value"),
        ({"messages": [{"role": "usr", "content": "a"}]}, "messages[0].role", "invalid_value"),
        ({"messages": [{"role": 5, "content": "a"}]}, "messages[0].role", "invalid_value"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "invalid_value"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content", "invalid_value"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].tool_call_id", "missing_required_parameter"),
        (
            {"messages": [*HELLO, {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a"}}]}]},
            "messages[1].content[0].type",
            "unsupported_parameter",
        ),
    ],
)
async def test_bad_values(shim: Shim, fields: dict[str, Any], param: str, code: str) -> None:
    response = await shim.chat(**fields)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"].startswith(param)
    assert error["code"].startswith(code)
    assert error["type"] == "invalid_request_error"
    assert param in error["message"]
    assert not shim.runtime.requests["CreateSession"], "nothing was begun"


@pytest.mark.parametrize(
    ("fields", "param", "why"),
    [
        ({"response_format": {"type": "structural_tag"}}, "response_format.type", "offer tools"),
        ({"guided_json": {}}, "guided_json", "response_format is its name here"),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {}}},
            "tool_choice.type",
            "a function can be forced",
        ),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "tools of the type 'web_search'; functions are"),
        ({"tools": [{"type": "function", "function": {"name": "a"}}]}, "tools", "'counter' writes no tools"),
        ({"service_tier": "flex"}, "service_tier", "there is one"),
        ({"modalities": ["text", "audio"]}, "modalities[1]", "answers are text"),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "a"}}]}]},
            "messages[0].content[0].type",
            "contents are texts",
        ),
    ],
)
async def test_values_that_are_known_and_not_served(shim: Shim, fields: dict[str, Any], param: str, why: str) -> None:
    error = (await shim.chat(**fields)).json()["error"]
    assert (error["param"], error["code"]) == (param, "unsupported_parameter")
    assert error["message"].startswith(f"{param}: not supported: ")
    assert why in error["message"]


@pytest.mark.parametrize("fields", [{"keep_alive": 0}, {"keep_alive": -1}, {"cache_prompt": False}, {"store": False}])
async def test_other_values_without_effect(shim: Shim, fields: dict[str, Any]) -> None:
    assert (await shim.chat(**fields, max_tokens=1)).status_code == 200


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [], "tool_choice": "auto", "parallel_tool_calls": False},
        {"functions": []},
        {"unknown": None},
        {"logprobs": False, "top_logprobs": 0},
        {"stop": None, "n": None, "seed": None, "stream_options": None, "stream": None, "temperature": None},
    ],
)
async def test_what_is_not_used_may_be_named(shim: Shim, fields: dict[str, Any]) -> None:
    response = await shim.chat(**fields, max_tokens=1)
    assert response.status_code == 200, response.text


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"content": "Hi", "refusal": None, "annotations": [], "audio": None, "function_call": None}, "Hi"),
        ({"content": "Hi", "tool_calls": []}, "Hi"),
        ({"content": []}, ""),
        ({"content": None, "refusal": "No."}, "No."),
        ({"content": [{"type": "text", "text": "Hm. "}, {"type": "refusal", "refusal": "No."}]}, "Hm. No."),
        ({"content": "Hi", "tool_calls": [TOOL_CALL | {"index": 0}], "unfinished_call": "<tool"}, "Hi"),
        ({"content": "Hi", "tool_calls": [{**TOOL_CALL, "function": PARSED}]}, "Hi"),
        ({"content": "Hi", "provider_specific_fields": {"refusal": None, "a": [1]}}, "Hi"),
    ],
)
async def test_answers_come_back_as_clients_have_them(shim: Shim, message: dict[str, Any], said: str) -> None:
    response = await shim.chat(messages=[*HELLO, {"role": "assistant", **message}, *HELLO], max_tokens=1)
    assert response.status_code == 200, response.text
    prompt = shim.tokenizer.decode(list(shim.runtime.requests["AppendTokens"][0].token_ids), special_tokens=True)
    assert f"<|im_start|>assistant\n{said}<|im_end|>" in prompt


def test_the_first_of_many_faults_is_enough() -> None:
    """To list them all would take seconds, in which nobody else is served."""
    for model, field, bad in ((CompletionRequest, "prompt", [-1, -1]), (ChatRequest, "messages", [5, 5])):
        with pytest.raises(ValidationError) as raised:
            model.model_validate({field: bad})
        assert raised.value.error_count() == 1


def test_no_messages() -> None:
    assert refusal(b"{}").param == "messages"


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b'{"messages": "\\ud800"}', b"nonsense"])
def test_no_json(body: bytes) -> None:
    error = refusal(body)
    assert (error.status, error.code, error.param) == (400, "invalid_json", None)


@pytest.mark.parametrize("body", [b"[]", b"5", b"null", b'"a"'])
def test_no_object(body: bytes) -> None:
    error = refusal(body)
    assert (error.status, error.code, error.param) == (400, "invalid_value", None)


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"1e999"])
def test_numbers_are_numbers(number: bytes) -> None:
    error = refusal(b'{"messages": [{"role": "user", "content": "a"}], "temperature": ' + number + b"}")
    assert error.status == 400


def test_a_conversation_of_many_messages() -> None:
    with pytest.raises(ApiError) as raised:
        ChatRequest.read(b'{"messages": [' + b",".join([b'{"role": "user", "content": ""}'] * 10_001) + b"]}")
    assert raised.value.param == "messages"


@pytest.mark.parametrize(
    ("fields", "generate"),
    [
        ({"max_tokens": 8.0}, {"max_tokens": 8}),
        ({"max_completion_tokens": 8.0}, {"max_tokens": 8}),
        ({"max_tokens": 3, "max_completion_tokens": 2}, {"max_tokens": 2}),
        ({"max_tokens": 2, "max_completion_tokens": 3}, {"max_tokens": 2}),
        ({"seed": -1.0, "top_k": 5.0, "max_tokens": 1.0}, {"seed": (1 << 64) - 1, "top_k": 5}),
        ({"logprobs": True, "top_logprobs": 2.0, "n": 1.0, "max_tokens": 1}, {"logprobs": 2}),
    ],
)
async def test_a_number_without_a_fraction_is_an_integer(
    shim: Shim, fields: dict[str, Any], generate: dict[str, int]
) -> None:
    response = await shim.chat(**fields)
    assert response.status_code == 200, response.text
    (request,) = shim.runtime.requests["Generate"]
    assert {name: getattr(request, name) for name in generate} == generate


@pytest.mark.parametrize("number", [b"8.5", b"1e400", b"-1e400", b"NaN", b"Infinity", b"true", b'"8"', b"[]"])
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "seed", "n", "top_k", "top_logprobs"])
def test_integers_are_integers(name: str, number: bytes) -> None:
    error = refusal(b'{"messages": [{"role": "user", "content": "a"}], "%s": %s}' % (name.encode(), number))
    assert (error.status, error.param) == (400, name)
