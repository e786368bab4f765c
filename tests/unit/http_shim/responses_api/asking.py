"""Requests of OpenAI's Responses, and the events of their streams."""

import json
from typing import Any

import httpx

from tests.unit.http_shim.shim import Shim

RESPONSES = "/v1/responses"
DONE = "data: [DONE]"
LAST = ("response.completed", "response.incomplete", "response.failed")


async def ask(shim: Shim, *, headers: Any = None, **fields: Any) -> httpx.Response:
    body = {"input": "Hello", "max_output_tokens": 50, **fields}
    return await shim.http.post(RESPONSES, json=body, headers=headers)


async def answered(shim: Shim, **fields: Any) -> Any:
    """The response object."""
    response = await ask(shim, **fields)
    assert response.status_code == 200, response.text
    return response.json()


async def events(shim: Shim, **fields: Any) -> list[Any]:
    """The data of a stream's events."""
    response = await ask(shim, stream=True, **fields)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return named(response.text)


def named(stream: str) -> list[Any]:
    """The data of whole events, each with the name that it has on the wire, in order."""
    *blocks, rest = stream.split("\n\n")
    assert rest == ""
    if blocks[-1] == DONE:
        blocks.pop()
    told = []
    for block in blocks:
        if block.startswith(":"):
            continue
        name, data = block.split("\n")
        told.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {told[-1]['type']}"
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    return told


def put_together(told: list[Any]) -> Any:
    """The response that a stream ends with; its events make the same output."""
    created, making, *between, last = told
    assert (created["type"], making["type"]) == ("response.created", "response.in_progress")
    assert created["response"] == making["response"]
    assert (created["response"]["status"], created["response"]["output"]) == ("in_progress", [])
    assert last["type"] in LAST
    output: list[Any] = []
    texts: dict[int, str] = {}
    for event in between:
        place, item = event["output_index"], output[-1] if output else {}
        match event["type"].removeprefix("response."):
            case "output_item.added":
                assert place == len(output)
                output.append(event["item"])
                texts[place] = ""
            case "content_part.added":
                assert (place, event["item_id"], event["content_index"]) == (len(output) - 1, item["id"], 0)
                assert event["part"]["text"] == ""
                item["content"].append(event["part"])
            case "output_text.delta" | "reasoning_text.delta" | "function_call_arguments.delta":
                assert event["item_id"] == item["id"]
                texts[place] += event["delta"]
            case "output_text.done" | "reasoning_text.done":
                assert event["text"] == texts[place]
            case "function_call_arguments.done":
                assert (event["arguments"], event["name"]) == (texts[place], item["name"])
            case "content_part.done":
                assert event["part"]["text"] == texts[place]
                item["content"] = [event["part"]]
            case "output_item.done":
                if "arguments" in item:
                    item["arguments"] = texts[place]
                told_item = event["item"]
                if item["type"] == "reasoning":
                    item["encrypted_content"] = told_item["encrypted_content"]
                assert {**told_item, "status": None} == {**item, "status": None}
                output[place] = told_item
            case kind:
                raise AssertionError(kind)
    assert last["response"]["output"] == output
    return last["response"]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def texts(response: Any) -> list[str]:
    """Of its messages."""
    return [part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]]
