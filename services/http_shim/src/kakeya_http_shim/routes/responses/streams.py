"""Streams of stored responses: told while they run, told again, and gone on with where their server was lost."""

import asyncio
from typing import Final
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kakeya import AsyncClient
from kakeya_http_shim.answers.reply import Reply
from kakeya_http_shim.answers.writer import OpenAiStream
from kakeya_http_shim.live.lasting_answer import LastingAnswer
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.responses_api.kept.kept_response import KeptResponse
from kakeya_http_shim.responses_api.kept.packing import Unreadable
from kakeya_http_shim.responses_api.kept.told_again import told_again
from kakeya_http_shim.responses_api.responses_writer import written
from kakeya_http_shim.routes.responses.looking import Looking
from kakeya_http_shim.routes.responses.resumed_route import ResumedRoute
from kakeya_http_shim.routes.responses.stored_response import IN_PROGRESS

_MAX_ATTEMPTS: Final = 8
"""Each that fails is one that another server has gone on with it in between."""
_EVENT: Final = b"event: "
_PIECE_EVENTS: Final = 256


class Streams:
    """Tells the streams of responses behind an event.

    Args:
        resumed: goes on with those whose server was lost.
    """

    def __init__(self, looking: Looking, resumed: ResumedRoute) -> None:
        self._looking = looking
        self._resumed = resumed
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def stream(self, client: AsyncClient, response_id: str, scope: Scope, after: int) -> ASGIApp:
        """The events of one, as it comes to have them. Raises ApiError."""
        async with self._turns.setdefault(response_id, asyncio.Lock()):  # two at once would take it from each other
            for _ in range(_MAX_ATTEMPTS):
                kept = await self._looking.look(client, response_id)
                running = self._looking.running.stream(response_id)
                if running is None and kept.status == IN_PROGRESS:
                    if kept.run is None:
                        raise _untold("nobody can go on with it")
                    running = await self._resumed.stream(client, response_id, scope)
                    if running is None:
                        continue
                return _again(kept, after) if running is None else _behind(running, after)
        raise ApiError(409, "other servers go on with the response all the time", code="stream_taken_over")


def _behind(stream: LastingAnswer, after: int) -> ASGIApp:
    """What a stream that runs says behind an event."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await stream(scope, receive, _Behind(send, after + 1))

    return app


class _Behind:
    """Passes on what comes behind so many events of a stream; of what is none, all."""

    def __init__(self, send: Send, num_events: int) -> None:
        self._send = send
        self._num_left = num_events

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._num_left *= message["status"] == 200
        elif self._num_left:
            message = {**message, "body": self._rest(message.get("body", b""))}
        await self._send(message)

    def _rest(self, data: bytes) -> bytes:
        rest = []
        for frame in data.split(b"\n\n")[:-1]:
            if self._num_left and frame.startswith(_EVENT):
                self._num_left -= 1
            elif not self._num_left:
                rest.append(frame + b"\n\n")
        return b"".join(rest)


def _again(kept: KeptResponse, after: int) -> ASGIApp:
    """A stream that has ended."""

    async def app(scope: Scope, _: Receive, send: Send) -> None:
        reply = Reply(scope, send)
        try:
            pieces = await asyncio.to_thread(_pieces, kept, after)
        except Unreadable:
            await reply.failure(_untold("it was stored by another version of this server"))
            return
        for piece in pieces:
            await reply.stream(piece)
        await reply.stream(OpenAiStream().done() if kept.status in ("completed", "incomplete") else b"", is_last=True)

    return app


def _pieces(kept: KeptResponse, after: int) -> list[bytes]:
    events = [written(event) for event in told_again(kept, after)]
    return [b"".join(events[begin : begin + _PIECE_EVENTS]) for begin in range(0, len(events), _PIECE_EVENTS)]


def _untold(why: str) -> ApiError:
    return ApiError(400, f"stream: {why}", param="stream", code="invalid_value")


def starting_after(request: Request) -> int:
    """The number of the event behind which a stream begins; -1: it begins at its beginning. Raises ApiError."""
    text = request.query_params.get("starting_after")
    if text is None:
        return -1
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        message = "starting_after: must be the number of an event"
        raise ApiError(400, message, param="starting_after", code="invalid_value")
    return int(text)
