"""Chats with tools: what is offered, what a model says, and what a client has of a stream."""

import json
from collections.abc import Sequence
from typing import Any

OSLO, ROME = {"city": "Oslo", "days": 2}, {"city": "Rome\n"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "How it will be",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
TOOLS = [WEATHER, {"type": "function", "function": {"name": "get_time"}}]


def hermes(name: str, arguments: dict[str, Any]) -> str:
    """A call in the words of Hermes and Qwen, spaced as no template does it."""
    return f'<tool_call>\n{{"name":"{name}",  "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def streamed(events: Sequence[Any]) -> dict[str, Any]:
    """The message that a stream's events make, and how it ended, as a client puts it together."""
    message: dict[str, Any] = {"role": "", "content": None}
    reason = None
    for event in events:
        if event == "[DONE]" or not event["choices"]:
            continue
        (choice,) = event["choices"]
        reason = choice["finish_reason"] or reason
        for name, piece in choice["delta"].items():
            if name == "tool_calls":
                _add_calls(message.setdefault("tool_calls", []), piece)
            elif piece is not None:
                message[name] = (message.get(name) or "") + piece
    return message | {"finish_reason": reason}


def _add_calls(calls: list[dict[str, Any]], pieces: Sequence[dict[str, Any]]) -> None:
    for piece in pieces:
        if piece["index"] == len(calls):
            calls.append({"id": piece["id"], "type": piece["type"], "function": {**piece["function"]}})
            assert piece["function"]["name"]
        else:
            assert piece["index"] == len(calls) - 1
            assert set(piece) == {"index", "function"}
            calls[-1]["function"]["arguments"] += piece["function"]["arguments"]


def whole(answer: dict[str, Any]) -> dict[str, Any]:
    """The same of an answer that is not streamed."""
    (choice,) = answer["choices"]
    message = {name: value for name, value in choice["message"].items() if name != "refusal"}
    return message | {"finish_reason": choice["finish_reason"]}


def said(message: dict[str, Any]) -> tuple[str, list[tuple[str, Any]], str, str]:
    """Content, calls, thoughts, and how it ended; each call has an id of its own."""
    calls = message.get("tool_calls", [])
    assert len({call["id"] for call in calls}) == len(calls)
    assert all(len(call["id"]) == 9 and call["id"].isalnum() and call["type"] == "function" for call in calls)
    functions = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]
    return message["content"] or "", functions, message.get("reasoning_content", ""), message["finish_reason"]
