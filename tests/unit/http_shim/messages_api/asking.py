"""Requests of Anthropic's API, and the events of their streams."""

import json
from typing import Any

import httpx

from tests.unit.http_shim.shim import HELLO, Shim

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"


async def ask(shim: Shim, *, headers: Any = None, **fields: Any) -> httpx.Response:
    return await shim.http.post(MESSAGES, json={"messages": HELLO, "max_tokens": 50, **fields}, headers=headers)


async def count(shim: Shim, **fields: Any) -> int:
    """Tokens of the messages."""
    response = await shim.http.post(COUNT, json={"messages": HELLO, **fields})
    assert response.status_code == 200, response.text
    assert response.json().keys() == {"input_tokens"}
    return int(response.json()["input_tokens"])


async def events(shim: Shim, **fields: Any) -> list[Any]:
    """The data of a stream's events, each with the name that it has on the wire."""
    response = await ask(shim, stream=True, **fields)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return named(response.text)


def named(stream: str) -> list[Any]:
    """The data of whole events."""
    *blocks, rest = stream.split("\n\n")
    assert rest == ""
    told = []
    for block in blocks:
        name, data = block.split("\n")
        told.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {told[-1]['type']}"
    return told


def put_together(told: list[Any]) -> Any:
    """The message that a client makes of a stream."""
    assert (told[0]["type"], told[-1]["type"]) == ("message_start", "message_stop")
    message, open_block = told[0]["message"], None
    for event in told[1:-1]:
        match event["type"]:
            case "content_block_start":
                assert (open_block, event["index"]) == (None, len(message["content"]))
                open_block = event["content_block"]
                message["content"].append(open_block)
            case "content_block_delta":
                assert open_block is message["content"][event["index"]]
                for name, text in event["delta"].items():
                    if name != "type":
                        open_block[name] += text
            case "content_block_stop":
                assert open_block is message["content"][event["index"]]
                open_block = None
            case "message_delta":
                message |= event["delta"] | {name: event[name] for name in event if name not in ("type", "delta")}
    assert open_block is None
    return message
