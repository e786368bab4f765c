"""The published schema and the server agree on each body of a walk over the schema, one way and the other."""

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

import jsonschema_rs
import pytest

from kakeya_http_shim.choices import ask
from kakeya_http_shim.messages_api.messages_request import CountTokensRequest, MessagesRequest
from kakeya_http_shim.ollama_api.ollama_requests import OllamaChatRequest, OllamaGenerateRequest, OllamaShowRequest
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.requests.completion_request import CompletionRequest
from kakeya_http_shim.requests.fields import RequestModel
from kakeya_http_shim.requests.generation_fields import GenerationFields, StreamOptions
from kakeya_http_shim.requests.text_requests import DetokenizeRequest, TemplateRequest, TokenizeRequest
from kakeya_http_shim.responses_api.responses_request import ResponsesRequest
from kakeya_http_shim.routes.openapi.document import document

_MAX_CHOICES = 8
_DOCUMENT = document("0", max_choices=_MAX_CHOICES)
_FUNCTION = {"name": "add", "arguments": "{}"}
_HELLO = [{"role": "user", "content": "Hello!"}]
_CHAT = {
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": "Hello!", "name": "me", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "Hm. "}, {"type": "refusal", "refusal": "No."}],
            "tool_calls": [{"id": "1", "type": "function", "function": _FUNCTION, "index": 0}],
        },
        {"role": "tool", "content": "5", "tool_call_id": "1"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {"name": "add", "description": "a", "parameters": {"type": "object"}, "strict": True},
        }
    ],
}
_MARK = {"cache_control": {"type": "ephemeral"}}
_RESULT = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "1"}], "is_error": False}
_MESSAGES = {
    "messages": [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "a"},
                {"type": "redacted_thinking", "data": "a"},
                {"type": "text", "text": "I add."},
                {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 1}, **_MARK},
            ],
        },
        {"role": "user", "content": [_RESULT, {"type": "text", "text": "Hello!", **_MARK}]},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello!"},
    ],
    "max_tokens": 1,
}
_MESSAGES_OPTIONS = {
    "system": [{"type": "text", "text": "Be brief.", **_MARK}],
    "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "omitted"},
    "tools": [{"name": "add", "input_schema": {"type": "object"}, "allowed_callers": ["direct"], **_MARK}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "output_config": {"effort": "high"},
    "context_management": {"edits": []},
    "stop_sequences": ["a"],
    "temperature": 1,
    "stream": True,
    "metadata": {"user_id": None},
    "kakeya": {"on_overflow": "evict"},
}
_OPTIONS = {
    "logit_bias": {"1": 1.5},
    "stop": ["a"],
    "metadata": {"a": "b"},
    "stream": True,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True, "include_obfuscation": False},
    "stop_token_ids": [1],
    "keep_alive": "5m",
    "logprobs": True,
    "response_format": {"type": "text"},
    "modalities": ["text"],
    "kakeya": {"on_overflow": "evict", "choice": ["a", "b"]},
}
_OLLAMA = {
    "model": "a",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello!"},
        {
            "role": "assistant",
            "content": "",
            "thinking": "Hm.",
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}],
        },
        {"role": "tool", "content": "5", "tool_name": "add", "tool_call_id": "1"},
    ],
    "tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}],
}
_OLLAMA_OPTIONS = {
    "model": "a",
    "stream": True,
    "format": {"type": "object"},
    "options": {
        "temperature": 1,
        "top_k": 1,
        "top_p": 0.5,
        "num_predict": -1,
        "stop": ["a"],
        "num_ctx": 1,
        "numa": True,
    },
    "think": "high",
    "keep_alive": "5m",
    "truncate": False,
    "logprobs": True,
    "top_logprobs": 1,
    "kakeya": {"on_overflow": "evict"},
}
_TEXT = {"type": "input_text", "text": "Hello!"}
_RESPONSES = {
    "input": [
        {"role": "user", "content": "Hello!"},
        {"type": "message", "role": "developer", "content": [_TEXT], "status": "completed"},
        {"type": "reasoning", "id": "1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {
            "type": "message",
            "role": "assistant",
            "phase": "commentary",
            "content": [
                {"type": "output_text", "text": "I add.", "annotations": [], "logprobs": [], "parsed": None},
                {"type": "refusal", "refusal": "No."},
            ],
        },
        {"type": "function_call", "call_id": "1", "name": "add", "arguments": "{}", "namespace": "a"},
        {"type": "function_call_output", "call_id": "1", "output": [_TEXT], "name": "add"},
    ],
}
_RESPONSES_OPTIONS = {
    "input": "Hello!",
    "instructions": "Be brief.",
    "tools": [
        {"type": "function", "name": "add", "description": "a", "parameters": {"type": "object"}, "strict": True},
        {"type": "web_search", "external_web_access": False},
        {"type": "namespace", "name": "a", "description": "b", "tools": [{"type": "function", "name": "add"}]},
    ],
    "tool_choice": "auto",
    "text": {"format": {"type": "json_schema", "name": "a", "schema": {}, "strict": True}, "verbosity": "medium"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "truncation": "auto",
    "previous_response_id": "resp_1",
    "store": True,
    "include": ["reasoning.encrypted_content"],
    "metadata": {"a": "b"},
    "stream": True,
    "stream_options": {"include_obfuscation": False},
    "background": False,
    "kakeya": {"on_overflow": "evict"},
}
_SCHEMA = {"name": "a", "description": "b", "schema": {"type": "object"}, "strict": True}
_COMPLETIONS: list[dict[str, Any]] = [
    {"prompt": prompt} for prompt in ("Once", ["Once", "upon"], [1, 2], [[1], [2, 3]])
]
_CASES: list[tuple[type[RequestModel], dict[str, Any]]] = [
    (ChatRequest, _CHAT),
    (ChatRequest, {"messages": _HELLO, **_OPTIONS}),
    (ChatRequest, {"messages": _HELLO, "response_format": {"type": "json_schema", "json_schema": _SCHEMA}}),
    *((CompletionRequest, body) for body in _COMPLETIONS),
    (MessagesRequest, _MESSAGES),
    (MessagesRequest, {"messages": _HELLO, "max_tokens": 1, **_MESSAGES_OPTIONS}),
    (CountTokensRequest, {"messages": _HELLO}),
    (OllamaChatRequest, _OLLAMA),
    (OllamaChatRequest, _OLLAMA_OPTIONS),
    (OllamaGenerateRequest, {"model": "a", "prompt": "Once", "system": "Be brief.", "raw": False, "suffix": ""}),
    (OllamaShowRequest, {"model": "a", "verbose": True}),
    (ResponsesRequest, _RESPONSES),
    (ResponsesRequest, _RESPONSES_OPTIONS),
    *((TokenizeRequest, body) for body in ({"prompt": "a"}, {"content": "a", "add_special": True}, _CHAT)),
    (TemplateRequest, _CHAT),
    (DetokenizeRequest, {"tokens": [1, 2]}),
]
_BORDERS = [0, 1, 2, 5, 8, 20, 100, 128, 1 << 32, 1 << 63]
_NUMBERS = [
    *(sign * (border + step) for border in _BORDERS for step in (-1, 0, 1) for sign in (1, -1)),
    *(float(border) for border in (-2, 0, 1, 2, 5, 8, 9, 20, 21, 128, 1 << 31)),
    *(0.5, 1.5, -0.1, 2.1, 100.5, 1e300),
]
_TEXTS = ["", "a", "1", "text", "user", "auto", "default", "none", *("é" * n for n in (256, 257, 512, 513, 1000, 1001))]
_ELEMENTS: list[Any] = [None, "", "a", "text", 0, 1.0, 1.5, -1, 1 << 32, True, [], [1], [1.0], [1.5], ["a"], {}]
_LISTS: list[Any] = [
    *([each] for each in _ELEMENTS),
    *(
        [],
        ["a"] * 4,
        ["a"] * 5,
        ["a"] * 8,
        ["a"] * 9,
        ["a"] * 16,
        ["a"] * 17,
        ["a", 1],
        [1, "a"],
        [[1]] * 8,
        [[1]] * 9,
        [1] * 9,
        [1] * 16,
        [1] * 17,
        ["text"] * 2,
    ),
]
_OBJECTS: list[Any] = [
    *(
        {},
        {"a": 1},
        {"a": "b"},
        {"a": None},
        {"a": []},
        {"1": 1},
        {"1": 1.5},
        {"1": 101},
        {"1": True},
        {"12345678901": 1},
    ),
    *({"type": "text"}, {"type": "json_object"}, {"type": "text", "text": "a"}, {"role": "user", "content": "a"}),
    *(
        {"include_usage": None},
        {"continuous_usage_stats": True},
        {"continuous_usage_stats": False},
        {"include_usage": True, "continuous_usage_stats": True},
    ),
    *({"regex": "a"}, {"regex": "a", "choice": ["a"]}, {"type": "json_schema", "json_schema": {"name": "a"}}),
    *({"include_obfuscation": 0}, {"on_overflow": "refuse"}, {str(n): "a" for n in range(17)}),
    {str(n): 1 for n in range(1025)},
]
_NAMES_INSIDE = frozenset({"name", "refusal", "unknown"})
_MAX_VALUES = 6  # of a field, beside as many of another
_PALETTE = [None, True, False, *_NUMBERS, *_TEXTS, *_LISTS, *_OBJECTS]


def changed(value: Any, names: frozenset[str]) -> Iterator[Any]:
    """The value with one part of it replaced, or taken out, or added.

    Args:
        names: what may be added to it, if it is an object.
    """
    yield from _PALETTE
    if isinstance(value, dict):
        for name in value:
            yield {other: part for other, part in value.items() if other != name}
            yield from ({**value, name: part} for part in changed(value[name], _NAMES_INSIDE))
        yield from ({**value, name: part} for name in names - value.keys() for part in _PALETTE)
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from ([*value[:place], part, *value[place + 1 :]] for part in changed(each, _NAMES_INSIDE))


def combined(model: type[RequestModel], question: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Each two fields with values that each may have by itself: what remains are rules between them."""
    schema = _DOCUMENT["components"]["schemas"][model.__name__]
    values = {}
    for name in model.model_fields:
        validator = _validator(schema["properties"][name])
        values[name] = [part for part in _PALETTE if validator.is_valid(part)][:_MAX_VALUES]
    for one, other in itertools.combinations(values, 2):
        for pair in itertools.product(values[one], values[other]):
            yield {**question, **dict(zip((one, other), pair, strict=True))}


def _validator(schema: dict[str, Any]) -> Any:
    return jsonschema_rs.Draft202012Validator({**schema, "components": _DOCUMENT["components"]})


def refusal(model: type[RequestModel], body: Any) -> str:
    """Why the server refuses a body, whatever model it is for; "" where it does not."""
    try:
        given = model.read(json.dumps(body).encode())
        if isinstance(given, GenerationFields):
            num_prompts = len(given.prompts) if isinstance(given, CompletionRequest) else 1
            ask.check_number(given.num_choices * num_prompts, _MAX_CHOICES)
    except ApiError as error:
        return str(error)
    return ""


def check(model: type[RequestModel], bodies: Iterable[Any]) -> tuple[int, int]:
    """How many of the bodies are allowed, and how many are not; fails where schema and server differ."""
    validator = _validator(_DOCUMENT["components"]["schemas"][model.__name__])
    counts = [0, 0]
    for body in bodies:
        is_allowed, why = validator.is_valid(body), refusal(model, body)
        assert is_allowed == (not why), (why, json.dumps(body)[:500])
        counts[is_allowed] += 1
    return counts[True], counts[False]


@pytest.mark.parametrize(("model", "body"), _CASES)
def test_what_the_schema_allows_is_read_and_nothing_else(model: type[RequestModel], body: dict[str, Any]) -> None:
    names = frozenset([*model.model_fields, "unknown", "tools", "function_call"]) - {"messages", "prompt"}
    num_allowed, num_forbidden = check(model, [body, *changed(body, names if len(body) == 1 else _NAMES_INSIDE)])
    # Bodies between text and tokens have a handful of fields.
    assert min(num_allowed, num_forbidden) > (100 if issubclass(model, GenerationFields) else 20)


@pytest.mark.parametrize(
    ("model", "question"),
    [
        (ChatRequest, {"messages": _HELLO}),
        *((CompletionRequest, body) for body in _COMPLETIONS[1:3]),
        (TokenizeRequest, {}),
        (OllamaGenerateRequest, {"model": "a"}),
        (OllamaShowRequest, {}),
        (ResponsesRequest, {}),
        (StreamOptions, {}),  # 2 fields of 3 values
    ],
)
def test_fields_that_do_not_go_together_are_in_the_schema(model: type[RequestModel], question: dict[str, Any]) -> None:
    num_allowed, num_forbidden = check(model, combined(model, question))
    assert min(num_allowed, num_forbidden) > (3 if model in (StreamOptions, OllamaShowRequest) else 100)
