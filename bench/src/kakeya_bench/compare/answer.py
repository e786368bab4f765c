"""What a server without sessions answers to one turn."""

import json
from dataclasses import dataclass, field
from typing import Any

from pydantic import AliasPath, BaseModel, Field, ValidationError

from kakeya.cli.output.table import printable

DONE = "[DONE]"
_LONGEST_SAYING = 300


class RivalFailed(Exception):
    """A turn came to nothing; the message says why in one line."""


class _Token(BaseModel):
    id: int


class _Logprobs(BaseModel):
    content: list[_Token] | None = None


class _Choice(BaseModel):
    text: str
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    """As vLLM tells them, where `return_token_ids` asks for it."""
    logprobs: _Logprobs | None = None
    """llama.cpp's server tells ids beside the log-probabilities."""

    @property
    def ids(self) -> list[int]:
        return self.token_ids or [token.id for token in (self.logprobs and self.logprobs.content) or ()]


class _Event(BaseModel):
    error: Any = None
    choices: list[_Choice] | None = None
    num_tokens: int | None = Field(None, validation_alias=AliasPath("usage", "completion_tokens"))
    num_cached_tokens: int | None = Field(
        None, validation_alias=AliasPath("usage", "prompt_tokens_details", "cached_tokens")
    )


@dataclass
class Answer:
    """Grows event by event; moments are in seconds of `clock.now`.

    Attributes:
        first_at: when the first token came; None where none did.
        done_at: when it was whole; 0 while it is not.
        num_cached_tokens: of the prompt, those that the server says it had in its cache; None where it does not.
    """

    first_at: float | None = None
    done_at: float = 0.0
    num_cached_tokens: int | None = None
    _counted: int | None = None
    _token_ids: list[int] = field(default_factory=list)

    @property
    def num_tokens(self) -> int | None:
        """None where the server tells neither their number nor their ids."""
        return len(self._token_ids) or None if self._counted is None else self._counted

    @property
    def token_ids(self) -> list[int] | None:
        """None where the server does not tell them all: a token that is half a letter may come without its id."""
        return self._token_ids if self._token_ids and len(self._token_ids) == self.num_tokens else None

    def take(self, data: str, moment: float) -> None:
        """An event's data, and when it came. Raises RivalFailed."""
        if data == DONE:
            self.done_at = moment
        if data in ("", DONE):
            return
        try:
            event = _Event.model_validate_json(data)
        except ValidationError:
            raise RivalFailed(f"an event is none of a completion: {in_one_line(data)}") from None
        if event.error:
            raise RivalFailed(f"it broke off: {saying(data)}")
        for choice in event.choices or ():
            if self.first_at is None and (choice.ids or choice.text or not choice.finish_reason):
                self.first_at = moment
            self._token_ids += choice.ids
        if event.num_tokens is not None:
            self._counted, self.num_cached_tokens = event.num_tokens, event.num_cached_tokens


def saying(body: str) -> str:
    """What an error's body says, in one line: its message, where it has one where OpenAI's errors have theirs."""
    try:
        error = json.loads(body)["error"]
        message = error["message"] if isinstance(error, dict) else error
    except (ValueError, KeyError, TypeError):
        message = None
    return in_one_line(str(message or body))


def in_one_line(text: str) -> str:
    """What a server said, or as much of it as is read."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= _LONGEST_SAYING else f"{line[: _LONGEST_SAYING - 1]}…"
