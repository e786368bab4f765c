"""A request of Ollama's API as one of OpenAI's, which is worked on."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from kakeya_http_shim.conversations.call_numbers import call_number
from kakeya_http_shim.ollama_api.ollama_messages import (
    OllamaAssistantMessage,
    OllamaCall,
    OllamaMessage,
    OllamaToolMessage,
)
from kakeya_http_shim.ollama_api.ollama_requests import OllamaChatRequest, OllamaFields, OllamaGenerateRequest
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.requests.completion_request import CompletionRequest
from kakeya_http_shim.requests.fields import RequestModel
from kakeya_http_shim.requests.generation_fields import KakeyaOptions

Body = TypeVar("Body", bound=RequestModel)

_HIGHEST: Final = "high"
"""What chat templates know as the highest effort; Ollama says `max`, too."""


def chat_request(given: OllamaChatRequest) -> ChatRequest | None:
    """The chat that it is; None where it says nothing.

    Raises:
        ApiError: there is nothing to answer.
    """
    if not given.messages:
        return None
    messages = [*_messages(given.messages)]
    ending = _ending(messages)
    return _made(ChatRequest, _chat_fields(given) | ending | {"messages": messages, "tools": given.tools or None})


def prompt_request(given: OllamaGenerateRequest) -> ChatRequest | CompletionRequest | None:
    """The chat of one message that it is, or the text to go on with; None where it says nothing."""
    if not given.prompt:
        return None
    if given.raw:
        return _made(CompletionRequest, _fields(given) | {"prompt": given.prompt})
    messages = [{"role": "system", "content": given.system}] if given.system else []
    return _made(
        ChatRequest, _chat_fields(given) | {"messages": [*messages, {"role": "user", "content": given.prompt}]}
    )


def _made(body: type[Body], fields: dict[str, Any]) -> Body:
    """What was read has no fault that one of ours could have."""
    return body.model_validate({name: value for name, value in fields.items() if value is not None})


def _fields(given: OllamaFields) -> dict[str, Any]:
    """Of a chat, or of a completion."""
    return {
        **given.sampling,
        "model": given.model,
        "stream": given.streams,
        "response_format": _response_format(given),
        "kakeya": _options(given),
    }


def _chat_fields(given: OllamaFields) -> dict[str, Any]:
    thinking: dict[str, Any] = {}
    if isinstance(given.think, str):
        thinking["reasoning_effort"] = _HIGHEST if given.think == "max" else given.think
    if given.think is not None:
        thinking["enable_thinking"] = bool(given.think)
    top = given.top_logprobs if given.logprobs else None
    return _fields(given) | thinking | {"logprobs": given.logprobs, "top_logprobs": top}


def _response_format(given: OllamaFields) -> dict[str, Any] | None:
    if isinstance(given.format, dict):
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": given.format}}
    return {"type": "json_object"} if given.format else None


def _options(given: OllamaFields) -> KakeyaOptions | None:
    own = given.kakeya or KakeyaOptions()
    if own.on_overflow is None and (given.truncate is False or given.shift is False):
        return own.model_copy(update={"on_overflow": "refuse"})
    return given.kakeya


def _ending(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """How the last one is gone on with, where that is the assistant's; without text it is left out.

    Raises:
        ApiError: none is left, or the last one calls tools.
    """
    last = messages[-1]
    if last["role"] != "assistant":
        return {}
    if last.get("tool_calls"):
        raise _unanswerable("the last one calls tools; what they answered is to follow")
    if last["content"]:
        return {"continue_final_message": True}
    del messages[-1]
    if not messages:
        raise _unanswerable("there is nothing to answer")
    return {}


def _unanswerable(why: str) -> ApiError:
    return ApiError(400, f"messages: {why}", param="messages", code="invalid_value")


def _messages(given: Iterable[OllamaMessage]) -> Iterator[dict[str, Any]]:
    """With ids of calls: those that are given, else the number of the call."""
    num_calls = 0
    waiting: list[tuple[str, str]] = []
    for message in given:
        said: dict[str, Any] = {"role": message.role, "content": message.content or ""}
        if isinstance(message, OllamaAssistantMessage):
            calls = [_call(call, num_calls + index) for index, call in enumerate(message.tool_calls or ())]
            num_calls += len(calls)
            if calls:
                waiting = [(call["id"], call["function"]["name"]) for call in calls]
            said |= {"reasoning_content": message.thinking or None, "tool_calls": calls or None}
        elif isinstance(message, OllamaToolMessage):
            name = message.tool_name or message.name or None
            said |= {"tool_call_id": message.tool_call_id or _answered(waiting, name), "name": name}
            waiting = [call for call in waiting if call[0] != said["tool_call_id"]]
        yield said


def _call(given: OllamaCall, index: int) -> dict[str, Any]:
    arguments = json.dumps(given.function.arguments, ensure_ascii=False)
    function = {"name": given.function.name, "arguments": arguments}
    return {"id": given.id or call_number(index), "type": "function", "function": function}


def _answered(waiting: Sequence[tuple[str, str]], name: str | None) -> str:
    """The id of the call that a tool of this name has answered: the first of those that wait; "" where none does."""
    named = [id_ for id_, called in waiting if called == name] or [id_ for id_, _ in waiting]
    return named[0] if named else ""
