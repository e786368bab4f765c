"""OpenAI's completions over HTTP, with token ids for a prompt."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from kakeya.bench.compare.answer import Answer, RivalFailed
from kakeya.bench.compare.rival import Rival
from kakeya.bench.compare.server_connection import ServerConnection


class Completions:
    """One rival's completions."""

    def __init__(self, rival: Rival, timeout_seconds: float) -> None:
        self._rival = rival
        self._timeout_seconds = timeout_seconds
        self._headers = {"content-type": "application/json", "accept": "text/event-stream"}
        if rival.key:
            self._headers["authorization"] = f"Bearer {rival.key}"

    async def ask(self, prompt: Sequence[int], max_tokens: int) -> tuple[Answer, float]:
        """The answer, and when the request was sent, by time.perf_counter.

        Raises:
            RivalFailed: nobody answers, or not in time, or with an error, or with half an answer.
        """
        body = json.dumps(self._fields(prompt, max_tokens), separators=(",", ":")).encode()
        connection = ServerConnection(self._rival.url)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await asyncio.to_thread(connection.post, self._headers, body)
        except TimeoutError:
            connection.cut()
            raise RivalFailed(f"no whole answer within {self._timeout_seconds:g} s") from None
        except asyncio.CancelledError:
            connection.cut()
            raise

    def _fields(self, prompt: Sequence[int], max_tokens: int) -> dict[str, Any]:
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
        return {name: value for name, value in {**usual, **self._rival.fields}.items() if value is not None}
