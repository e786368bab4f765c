"""OpenAI's completions over HTTP, with token ids for a prompt, of a server without sessions."""

import asyncio
import json
import ssl
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import httpx
from httpx_sse import aconnect_sse
from pydantic import AliasPath, BaseModel, Field, ValidationError

from kakeya.cli.output.table import printable
from kakeya_bench.compare.rival import Rival
from kakeya_bench.conversation import clock
from kakeya_bench.conversation.failure import describe

DONE = "[DONE]"
_LONGEST_SAYING = 300
CONNECT_SECONDS = 10.0
_MOST_OF_AN_ERROR = 65_536  # characters: a server that fails may go on for ever


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


def check_length(num_tokens: int | None, wanted: int) -> None:
    """Raises RivalFailed: an answer has another length, as far as that is known."""
    if num_tokens not in (None, wanted):
        raise RivalFailed(
            f"its answer has a length of {num_tokens}, not {wanted}: it must not end by itself "
            "(ignore_eos, or logit_bias by --fields)"
        )


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


class Completions:
    """One rival's completions.

    No proxies, which would be measured, too; HTTPS knows the authorities of the system. Some servers close connections
    after an answer without saying so: each request has one of its own.
    """

    def __init__(self, rival: Rival, timeout_seconds: float) -> None:
        self._rival = rival
        self._timeout_seconds = timeout_seconds
        self._authorities = ssl.create_default_context()
        self._headers = {"content-type": "application/json", "accept-encoding": "identity", "connection": "close"}
        if rival.key:
            self._headers["authorization"] = f"Bearer {rival.key}"

    async def ask(self, prompt: Sequence[int], max_tokens: int) -> tuple[Answer, float]:
        """The answer, and when the request was sent over the connection that was made for it, by `clock.now`.

        Raises:
            RivalFailed: nobody answers, or not in time, or with an error, or with half an answer.
        """
        usual = {
            "model": self._rival.model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": True,
            "return_token_ids": True,
        }
        fields = {name: value for name, value in {**usual, **self._rival.fields}.items() if value is not None}
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._post(fields)
        except TimeoutError:
            raise RivalFailed(f"no whole answer within {self._timeout_seconds:g} s") from None
        except httpx.ConnectTimeout:
            raise RivalFailed(f"no connection within {CONNECT_SECONDS:g} s") from None
        except httpx.HTTPError as error:
            raise RivalFailed(_reason(error)) from error

    async def _post(self, fields: dict[str, Any]) -> tuple[Answer, float]:
        began = 0.0

        async def trace(event: str, _: object) -> None:
            nonlocal began
            if event == "http11.send_request_headers.started":  # the connection stands
                began = clock.now()

        answer = Answer()
        timeout = httpx.Timeout(None, connect=CONNECT_SECONDS)
        async with (
            httpx.AsyncClient(verify=self._authorities, trust_env=False, timeout=timeout) as client,
            aconnect_sse(
                client,
                "POST",
                f"{self._rival.url}/completions",
                json=fields,
                headers=self._headers,
                extensions={"trace": trace},
            ) as source,
        ):
            if source.response.status_code != HTTPStatus.OK:
                start = await anext(source.response.aiter_text(_MOST_OF_AN_ERROR), "")
                raise RivalFailed(f"HTTP {source.response.status_code}: {saying(start)}")
            async with aclosing(source.aiter_sse()) as events:
                async for event in events:
                    answer.take(event.data, clock.now())
        if not answer.done_at:
            raise RivalFailed("its stream ended before the answer did")
        return answer, began


def _reason(error: Exception) -> str:
    """The innermost one: what the system said is wrapped by each library on its way, and by one of them `from None`."""
    inner = error.exceptions[0] if isinstance(error, ExceptionGroup) else error.__cause__ or error.__context__
    return _reason(inner) if isinstance(inner, Exception) else in_one_line(describe(error))
