"""Requests of Ollama's API, and the lines of their streams."""

import json
from typing import Any

import httpx

from tests.unit.http_shim.shim import HELLO, MODEL, Shim

OLLAMA_CHAT, GENERATE, SHOW = "/api/chat", "/api/generate", "/api/show"


async def ask(shim: Shim, *, headers: Any = None, **fields: Any) -> httpx.Response:
    """For the whole answer of a chat."""
    body = {"model": MODEL, "messages": HELLO, "stream": False, **fields}
    return await shim.http.post(OLLAMA_CHAT, json=body, headers=headers)


async def generate(shim: Shim, **fields: Any) -> httpx.Response:
    """For the whole answer to a prompt."""
    return await shim.http.post(GENERATE, json={"model": MODEL, "prompt": "Once", "stream": False, **fields})


async def lines(shim: Shim, path: str = OLLAMA_CHAT, *, headers: Any = None, **fields: Any) -> list[Any]:
    """Of a stream, as it comes where nothing is said of it."""
    asked = {"messages": HELLO} if path == OLLAMA_CHAT else {"prompt": "Once"}
    response = await shim.http.post(path, json={"model": MODEL, **asked, **fields}, headers=headers)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    return read(response.text)


def read(stream: str) -> list[Any]:
    """Whole lines, of which the last one alone is the end."""
    assert stream.endswith("\n")
    told = [json.loads(line) for line in stream.splitlines()]
    assert [line["done"] for line in told] == [False] * (len(told) - 1) + [True]
    return told


def put_together(told: list[Any]) -> Any:
    """The answer that a client makes of a stream."""
    answer = told[-1]
    pieces = [line.get("message", line) for line in told]
    joined: dict[str, Any] = {
        name: "".join(piece.get(name, "") for piece in pieces)
        for name in ("content", "response", "thinking", "unfinished_call")
    }
    joined["tool_calls"] = [call for piece in pieces for call in piece.get("tool_calls", [])]
    said = {name: value for name, value in joined.items() if value}
    if "message" in answer:
        answer["message"] = {"role": "assistant", "content": "", **said}
    else:
        answer |= said
    return answer | {"logprobs": [each for line in told for each in line.get("logprobs", [])]}
