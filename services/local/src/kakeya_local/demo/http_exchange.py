"""One chat completion over HTTP, streamed, as any OpenAI client asks for it."""

import http.client
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kakeya_local.errors import StackError
from kakeya_local.stack.planning.http_entrance import HttpEntrance, error_message

Message = dict[str, str]
_SILENCE_SECONDS = 120.0
_DATA = b"data:"
_DONE = b"[DONE]"


@dataclass(frozen=True)
class Completion:
    """An answer and what it cost.

    Attributes:
        first_token_seconds: from the request to the first piece of text, as the client's clock has it.
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


def complete(entrance: HttpEntrance, model: str, messages: Sequence[Message], max_tokens: int) -> Completion:
    """Asks for the most likely answer. Raises StackError where the shim refuses it or breaks off."""
    body = {
        "model": model,
        "messages": messages,
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "kakeya": {"on_overflow": "evict"},  # whatever the shim's own variables say
    }
    connection = entrance.connection(_SILENCE_SECONDS)
    try:
        started = time.monotonic()
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        return _read(connection.getresponse(), started)
    except (OSError, http.client.HTTPException) as error:
        raise StackError(f"the HTTP shim broke off: {error}") from error
    finally:
        connection.close()


def _read(response: http.client.HTTPResponse, started: float) -> Completion:
    if response.status != http.client.OK:
        reason = error_message(response.read()) or response.reason
        raise StackError(f"the HTTP shim answers {response.status}: {reason}")
    pieces: list[str] = []
    usage: dict[str, Any] | None = None
    first_token_seconds = 0.0
    for event in _events(response):
        usage = event.get("usage") or usage
        piece = "".join(choice["delta"].get("content") or "" for choice in event["choices"])
        if piece and not pieces:
            first_token_seconds = time.monotonic() - started
        pieces += [piece] * bool(piece)
    if usage is None:
        raise StackError("the HTTP shim ended an answer without its usage")
    kept = usage["kakeya"]
    session = kept.get("session") or {}
    return Completion(
        "".join(pieces).strip(),
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
    )


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
