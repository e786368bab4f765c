"""One chat completion over HTTP, streamed, as any OpenAI client asks for it."""

import http.client
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from kakeya_local.demo.scripts import Tools
from kakeya_local.errors import StackError
from kakeya_local.stack.planning.http_entrance import HttpEntrance, error_message

Message = dict[str, Any]
_SILENCE_SECONDS = 120.0
_DATA = b"data:"
_DONE = b"[DONE]"


@dataclass(frozen=True)
class Call:
    """Of a tool. Attributes: `arguments`: JSON."""

    id: str
    name: str
    arguments: str

    def __str__(self) -> str:
        return f"{self.name}({self.arguments})"


@dataclass(frozen=True)
class Completion:
    """An answer and what it cost.

    Attributes:
        first_token_seconds: from the request to the first piece of the answer, as the client's clock has it. A call
            is one piece.
        history, retained, evicted: tokens of the conversation, answer included: all, those that the model still sees,
            and those that it does not.
        session_id, session_state: of the session that it is in, and what became of that; "" of one that has ended.
        appended, reused: tokens of the prompt that were added to it, and those that it had already.
    """

    text: str
    first_token_seconds: float
    prompt_tokens: int
    completion_tokens: int
    history: int
    retained: int
    evicted: int
    session_id: str = ""
    session_state: str = ""
    appended: int = 0
    reused: int = 0
    calls: tuple[Call, ...] = ()

    @property
    def message(self) -> Message:
        """As it is sent back in the next turn."""
        if not self.calls:
            return {"role": "assistant", "content": self.text}
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in self.calls
        ]
        return {"role": "assistant", "content": self.text or None, "tool_calls": calls}

    def figures(self) -> dict[str, object]:
        """For programs."""
        return {name: value for name, value in vars(self).items() if name not in ("text", "session_id", "calls")}


def complete(
    entrance: HttpEntrance, model: str, messages: Sequence[Message], max_tokens: int, tools: Tools = ()
) -> Completion:
    """Asks for the most likely answer. Raises StackError where the shim refuses it or breaks off."""
    body = {
        "model": model,
        "messages": messages,
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "kakeya": {"on_overflow": "evict"},  # whatever the shim's own variables say
        **({"tools": tools} if tools else {}),
    }
    started = time.monotonic()
    with _asked(entrance, "/v1/chat/completions", body) as response:
        return _read(response, started)


def calls_tools(entrance: HttpEntrance, model: str) -> bool:
    """Whether a model is told of tools, and its calls are read. Raises StackError as `complete` does."""
    with _asked(entrance, "/api/show", {"model": model}) as response:
        return "tools" in json.load(response)["capabilities"]


@contextmanager
def _asked(entrance: HttpEntrance, path: str, body: object) -> Iterator[http.client.HTTPResponse]:
    connection = entrance.connection(_SILENCE_SECONDS)
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        if response.status != http.client.OK:
            reason = error_message(response.read()) or response.reason
            raise StackError(f"the HTTP shim answers {response.status}: {reason}")
        yield response
    except (OSError, http.client.HTTPException) as error:
        raise StackError(f"the HTTP shim broke off: {error}") from error
    finally:
        connection.close()


def _read(response: http.client.HTTPResponse, started: float) -> Completion:
    said, calls = "", dict[int, Call]()
    usage: dict[str, Any] | None = None
    first_token_seconds = 0.0
    for event in _events(response):
        usage = event.get("usage") or usage
        for delta in (choice["delta"] for choice in event["choices"]):
            said += delta.get("content") or ""
            for piece in delta.get("tool_calls") or ():
                calls[piece["index"]] = _joined(calls.get(piece["index"]), piece)
        if not first_token_seconds and (said or calls):
            first_token_seconds = time.monotonic() - started
    if usage is None:
        raise StackError("the HTTP shim ended an answer without its usage")
    kept = usage["kakeya"]
    session = kept.get("session") or {}
    return Completion(
        said.strip(),
        first_token_seconds,
        usage["prompt_tokens"],
        usage["completion_tokens"],
        kept["history"],
        kept["retained"],
        kept["evicted"],
        session.get("id", ""),
        session.get("state", ""),
        session.get("appended", 0),
        session.get("reused", 0),
        tuple(calls.values()),
    )


def _joined(call: Call | None, piece: dict[str, Any]) -> Call:
    """A call and what an event adds to it; None: it begins one."""
    function = piece["function"]
    if call is None:
        return Call(piece["id"], function["name"], function.get("arguments") or "")
    return replace(call, arguments=call.arguments + function["arguments"])


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The events of a stream up to its [DONE]. Raises StackError where it lacks one, or one is an error."""
    for line in response:
        if not line.startswith(_DATA):
            continue  # comments, and the blank lines between events
        data = line.removeprefix(_DATA).strip()
        if data == _DONE:
            return
        if reason := error_message(data):
            raise StackError(f"the HTTP shim broke off: {reason}")
        yield json.loads(data)
    raise StackError("the HTTP shim broke off: the stream has no end")
