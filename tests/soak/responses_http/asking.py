"""One response that is asked for, whole or streamed, cut and gone on with, at any shim."""

import asyncio
import json
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.soak.histories_http.asking import Refusal
from tests.soak.histories_http.ground import Ground

PATH = "/v1/responses"
_NUM_TRIES = 200
_PAUSE_SECONDS = 0.3
_COME_BACK = (429, 502, 503)
_DATA = "data: "
_LAST = ("response.completed", "response.incomplete", "response.failed")
_LOST = ("server_lost", "stream_taken_over")
"""What becomes of an answer whose session was lost, or that two clients want at once."""


class _Broken(Exception):
    """What was asked broke off, or never came: it is asked for again."""


@dataclass
class Told:
    """The events of a stream, as they have come.

    Attributes:
        faults: of their numbers.
        num_resumed: times that it was gone on with.
    """

    events: list[dict[str, Any]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    num_resumed: int = 0

    def hear(self, event: dict[str, Any]) -> None:
        number = event["sequence_number"]
        if number != len(self.events):
            self.faults.append(f"event {number} behind {len(self.events) - 1}")
        self.events.append(event)

    @property
    def response(self) -> dict[str, Any] | None:
        """None: it has not ended."""
        if self.events and self.events[-1]["type"] in _LAST:
            found: dict[str, Any] = self.events[-1]["response"]
            return found
        return None

    @property
    def text(self) -> str:
        return "".join(each["delta"] for each in self.events if each["type"] == "response.output_text.delta")


@dataclass(frozen=True)
class Client:
    """Of one tenant, at whichever shim."""

    http: httpx.AsyncClient
    ground: Ground
    tenant: str

    async def call(self, draw: random.Random, method: str, path: str, **what: Any) -> httpx.Response:
        """Comes back for as long as a process that was killed may be away."""
        for _ in range(_NUM_TRIES):
            with suppress(httpx.TransportError):  # of a shim that was killed: its successor is asked
                response = await self.http.request(method, self._url(draw, path), headers=self._headers, **what)
                if response.status_code not in _COME_BACK:
                    return response
            await asyncio.sleep(_PAUSE_SECONDS)
        raise AssertionError(f"not answered: {method} {path}")

    async def create(self, draw: random.Random, body: dict[str, Any]) -> dict[str, Any] | Refusal:
        """A whole one."""
        return _read(await self.call(draw, "POST", PATH, json=body))

    async def stream(self, draw: random.Random, body: dict[str, Any], cut_after: int) -> Told | Refusal:
        """A streamed one, left behind so many events, and gone on with wherever."""
        for _ in range(_NUM_TRIES):
            told = Told()
            with suppress(httpx.TransportError, _Broken):  # it is gone on with, or asked for again if it had not begun
                refusal = await self._hear(draw, told, "POST", PATH, cut_after, json=body | {"stream": True})
                if refusal is not None:
                    return refusal
            if told.events and await self._rest(draw, told):
                return told
            await asyncio.sleep(_PAUSE_SECONDS)
        raise AssertionError("a stream never ended")

    async def _rest(self, draw: random.Random, told: Told) -> bool:
        """Whether all of it has come, and not where nothing of it can come any more."""
        response_id = told.events[0]["response"]["id"]
        for _ in range(_NUM_TRIES):
            if told.response is not None:
                return not _is_lost(told.response)
            query = {"stream": "true", "starting_after": str(len(told.events) - 1)}
            told.num_resumed += 1
            with suppress(httpx.TransportError, _Broken):
                if await self._hear(draw, told, "GET", f"{PATH}/{response_id}", None, params=query) is not None:
                    return False  # it was not kept
            await asyncio.sleep(_PAUSE_SECONDS if told.response is None else 0)
        raise AssertionError("a stream never ended")

    async def _hear(
        self, draw: random.Random, told: Told, method: str, path: str, cut_after: int | None, **what: Any
    ) -> Refusal | None:
        async with self.http.stream(method, self._url(draw, path), headers=self._headers, **what) as response:
            if response.status_code != httpx.codes.OK:
                refusal = _refusal(response.status_code, await response.aread())
                if refusal.status in _COME_BACK:
                    raise _Broken(refusal.code)
                return refusal
            async for line in response.aiter_lines():
                if not line.startswith(_DATA) or line == f"{_DATA}[DONE]":
                    continue
                event = json.loads(line.removeprefix(_DATA))
                if event["type"] == "error" and event["code"] == "stream_taken_over":
                    return None
                told.hear(event)
                if len(told.events) == cut_after:
                    return None
        return None

    def _url(self, draw: random.Random, path: str) -> str:
        return f"http://{self.ground.address(draw)}{path}"

    @property
    def _headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.ground.keys[self.tenant]}"}


def _is_lost(response: dict[str, Any]) -> bool:
    return response["status"] == "failed" and response["error"]["code"] in (*_LOST, "session_not_found", "worker_lost")


def _read(response: httpx.Response) -> dict[str, Any] | Refusal:
    if response.status_code != httpx.codes.OK:
        return _refusal(response.status_code, response.content)
    found: dict[str, Any] = response.json()
    return found


def _refusal(status: int, body: bytes) -> Refusal:
    error = json.loads(body)["error"]
    return Refusal(status, str(error["code"]), str(error["message"]))
