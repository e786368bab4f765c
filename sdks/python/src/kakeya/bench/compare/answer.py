"""What a server without sessions answers to one turn."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kakeya.cli.output.table import printable

DONE = b"[DONE]"
_LONGEST_SAYING = 300


class RivalFailed(Exception):
    """A turn came to nothing; the message says why in one line."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; moments are in seconds of time.perf_counter.

    Attributes:
        token_ids: None where the server does not tell them.
        num_tokens: None where nobody tells.
        first_at: when the first token came; None where none did.
        done_at: when it was whole.
        num_cached_tokens: of the prompt, those that the server says it had in its cache; None where it does not.
    """

    token_ids: list[int] | None
    num_tokens: int | None
    first_at: float | None
    done_at: float
    num_cached_tokens: int | None


class AnswerReader:
    """Puts an answer together, event by event."""

    def __init__(self) -> None:
        self._token_ids: list[int] = []
        self._num_tokens: int | None = None
        self._num_cached_tokens: int | None = None
        self._first_at: float | None = None
        self._done_at: float | None = None

    def take(self, data: bytes, moment: float) -> None:
        """An event's data, and when it came. Raises RivalFailed."""
        if data == DONE:
            self._done_at = moment
            return
        event = _document(data)
        if event.get("error"):
            raise RivalFailed(f"it broke off: {saying(data)}")
        try:
            self._read(event, moment)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise RivalFailed(f"an event is none of a completion: {_short(data)}") from None

    def answer(self) -> Answer:
        """The whole of it, once the stream is over. Raises RivalFailed where it ended before its end."""
        if self._done_at is None:
            raise RivalFailed("its stream ended before the answer did")
        num_tokens = self._num_tokens
        if num_tokens is None and self._token_ids:
            num_tokens = len(self._token_ids)
        # A token that is half a letter may come without an id: then the answer's ids are not known.
        knows_all = bool(self._token_ids) and len(self._token_ids) == num_tokens
        return Answer(
            token_ids=self._token_ids if knows_all else None,
            num_tokens=num_tokens,
            first_at=self._first_at,
            done_at=self._done_at,
            num_cached_tokens=self._num_cached_tokens,
        )

    def _read(self, event: Mapping[str, Any], moment: float) -> None:
        if usage := event.get("usage"):
            self._num_tokens = int(usage["completion_tokens"])
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
            self._num_cached_tokens = None if cached is None else int(cached)
        for choice in event.get("choices") or ():
            token_ids = _token_ids(choice)
            if self._first_at is None and (token_ids or choice["text"] or not choice.get("finish_reason")):
                self._first_at = moment
            self._token_ids += token_ids


def saying(body: bytes) -> str:
    """What an error's body says, in one line: its message, where it has one where OpenAI's errors have theirs."""
    try:
        error = json.loads(body)["error"]
        message = error["message"] if isinstance(error, dict) else error
    except (ValueError, KeyError, TypeError):
        message = None
    return _short(str(message).encode() if message else body)


def _document(data: bytes) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise RivalFailed(f"an event is no JSON object: {_short(data)}")
    return event


def _token_ids(choice: Mapping[str, Any]) -> list[int]:
    """As vLLM tells them (`return_token_ids`), or llama.cpp's server beside the log-probabilities."""
    if told := choice.get("token_ids"):
        return [int(token_id) for token_id in told]
    logprobs = choice.get("logprobs") or {}
    return [int(token["id"]) for token in logprobs.get("content") or ()]


def _short(text: bytes) -> str:
    line = printable(" ".join(text.decode(errors="replace").split()))
    return line if len(line) <= _LONGEST_SAYING else f"{line[: _LONGEST_SAYING - 1]}…"
