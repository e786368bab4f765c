"""One request of a client and what comes of it, whole or streamed."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.soak.histories_http.ground import Ground
from tests.soak.histories_http.histories import Message, encoded

_PATH = "/v1/chat/completions"
_ANSWER_SECONDS = 60.0
_NUM_TRIES = 200
_PAUSE_SECONDS = 0.3
_COME_BACK = (429, 502, 503)
_DATA = "data: "


@dataclass(frozen=True)
class Ask:
    """What is asked.

    Attributes:
        kind: what became of its messages, or in what it differs from a client's next turn.
        fields: of the body, beside messages, model and `stream`.
        leaves_after: so many events of a stream; None: it stays.
    """

    kind: str
    tenant: str
    model: str
    messages: Sequence[Message]
    fields: Mapping[str, Any]
    streams: bool = False
    leaves_after: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def on_overflow(self) -> str:
        return str(self.fields.get("kakeya", {}).get("on_overflow", "evict"))

    @property
    def num_choices(self) -> int:
        return int(self.fields.get("n", 1))

    def __str__(self) -> str:
        said = json.dumps(list(self.messages), ensure_ascii=False)
        return f"[{self.kind}] {self.tenant}, {self.model}, {dict(self.fields)}, {dict(self.headers)}: {said}"


@dataclass(frozen=True)
class Answer:
    """What came.

    Attributes:
        content: of the first choice.
        finish_reason: "" of an answer whose client left.
        session: what the header says, by its names; `state` is its first word.
        usage: None of an answer whose client left.
    """

    content: str
    finish_reason: str
    session: Mapping[str, str]
    usage: Mapping[str, Any] | None


@dataclass(frozen=True)
class Refusal:
    status: int
    code: str
    message: str


class _Failed(Exception):
    """An answer that broke off, or never came: it is asked for again."""


async def ask(client: httpx.AsyncClient, ground: Ground, given: Ask, draw: random.Random) -> Answer | Refusal:
    """Comes back for as long as a process that was killed may be away. Raises AssertionError after a minute or more."""
    for _ in range(_NUM_TRIES):
        try:
            answer = await _try(client, ground.address(draw), ground.keys[given.tenant], given, draw)
        except (_Failed, httpx.TransportError):
            await asyncio.sleep(_PAUSE_SECONDS)
            continue
        if isinstance(answer, Answer) or answer.status not in _COME_BACK:
            return answer
        await asyncio.sleep(_PAUSE_SECONDS)
    raise AssertionError(f"not answered: {given}")


async def _try(client: httpx.AsyncClient, address: str, key: str, given: Ask, draw: random.Random) -> Answer | Refusal:
    body = {"messages": list(given.messages), "model": given.model, **given.fields}
    if given.streams:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}", **given.headers}
    request = client.build_request("POST", f"http://{address}{_PATH}", content=encoded(draw, body), headers=headers)
    response = await client.send(request, stream=True)
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            if response.status_code != httpx.codes.OK:
                return _refusal(response.status_code, await response.aread())
            if given.streams:
                return await _streamed(response, given.leaves_after)
            return _whole(response, await response.aread())
    finally:
        await response.aclose()


def _refusal(status: int, body: bytes) -> Refusal:
    error = json.loads(body)["error"]
    return Refusal(status, str(error["code"]), str(error["message"]))


def _whole(response: httpx.Response, body: bytes) -> Answer:
    answer = json.loads(body)
    choice = next(each for each in answer["choices"] if not each["index"])
    content = choice["message"]["content"] or ""
    return Answer(content, choice["finish_reason"], _session(response), answer["usage"])


async def _streamed(response: httpx.Response, leaves_after: int | None) -> Answer:
    content, finish_reason, usage, is_done = "", "", None, False
    number = 0
    async for event in _events(response):
        if event is None:
            is_done = True
            break
        number += 1
        for choice in event["choices"]:
            if not choice["index"]:
                content += choice["delta"].get("content") or ""
                finish_reason = choice["finish_reason"] or finish_reason
        usage = event.get("usage") or usage
        if leaves_after is not None and number >= leaves_after and not finish_reason:
            return Answer(content, "", _session(response), None)
    if not is_done:
        raise _Failed("the stream broke off")
    return Answer(content, finish_reason, _session(response), usage)


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, Any] | None]:
    """None: `[DONE]`."""
    async for line in response.aiter_lines():
        if not line.startswith(_DATA):
            continue
        data = line.removeprefix(_DATA)
        if data == "[DONE]":
            yield None
            return
        event = json.loads(data)
        if "error" in event:
            raise _Failed(event["error"]["code"])
        yield event


def _session(response: httpx.Response) -> dict[str, str]:
    state, *pairs = response.headers.get("kakeya-session", "").split("; ")
    return {"state": state, **dict(pair.split("=", 1) for pair in pairs)}
