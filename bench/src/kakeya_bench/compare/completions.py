"""OpenAI's completions over HTTP, with token ids for a prompt."""

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

import httpx
from httpx_sse import aconnect_sse

from kakeya_bench.compare.answer import Answer, RivalFailed, in_one_line, saying
from kakeya_bench.compare.rival import Rival
from kakeya_bench.conversation import clock
from kakeya_bench.conversation.failure import describe

CONNECT_SECONDS = 10.0
_MOST_OF_AN_ERROR = 65_536  # characters: a server that fails may go on for ever


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
                client, "POST", f"{self._rival.url}/completions", json=fields, headers=self._headers,
                extensions={"trace": trace},
            ) as source,
        ):  # fmt: skip
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
