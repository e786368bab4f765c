"""Answers that outlive their connection.

Each is a request to an application of this process, whose client is kept here: what it sends is read by each client
that connects, from its first byte on. Where none does for a while, that client leaves.
"""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kakeya_http_shim import error_shapes
from kakeya_http_shim.problems import ApiError


class LastingAnswer:
    """One answer.

    Args:
        alone_seconds: for which it goes on although nobody reads it.
        unbegun_seconds: the same, before anything of it was said.

    Attributes:
        is_over: all of it is there.
    """

    def __init__(self, alone_seconds: float, unbegun_seconds: float) -> None:
        self.is_over = False
        self._alone_seconds = alone_seconds
        self._unbegun_seconds = unbegun_seconds
        self._messages: list[Message] = []
        self._num_readers = 0
        self._grew = asyncio.Event()
        self._leaves = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, app: ASGIApp, scope: Scope, body: bytes | None) -> None:
        """Has it made; to its end, or until its client leaves.

        Args:
            body: of the request; None: it was read already.
        """
        request: list[Message] = []
        if body is not None:
            request.append({"type": "http.request", "body": body, "more_body": False})

        async def receive() -> Message:
            if request:
                return request.pop()
            await self._leaves.wait()
            return {"type": "http.disconnect"}

        try:
            await app(scope, receive, self._send)
        except ApiError as error:
            await error_shapes.response(error, scope)(scope, receive, self._send)
        finally:
            await self._complete(scope, receive)
            self.is_over = True
            self._grow()

    async def _send(self, message: Message) -> None:
        self._messages.append(message)
        self._grow()

    async def _complete(self, scope: Scope, receive: Receive) -> None:
        """One that was left in the middle ends there for its readers."""
        if not self._messages:
            await error_shapes.response(_left(), scope)(scope, receive, self._send)
        elif self._messages[-1].get("more_body", True):
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def leave(self) -> None:
        """Its client wants no more of it."""
        self._leaves.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Says all of it to one reader, as it comes."""
        reading = asyncio.create_task(self._say(send))
        gone = asyncio.create_task(_disconnected(receive))
        self._num_readers += 1
        if self._timer is not None:
            self._timer.cancel()
        try:
            await asyncio.wait((reading, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._num_readers -= 1
            for task in (reading, gone):
                task.cancel()
            await asyncio.gather(reading, gone, return_exceptions=True)
            if not (self._num_readers or self.is_over):
                alone_seconds = self._alone_seconds if self._messages else self._unbegun_seconds
                self._timer = asyncio.get_running_loop().call_later(alone_seconds, self.leave)

    async def _say(self, send: Send) -> None:
        num_said = 0
        while True:
            while num_said < len(self._messages):
                await send(self._messages[num_said])
                num_said += 1
            if self.is_over:
                return
            await self._grew.wait()

    def _grow(self) -> None:
        self._grew.set()
        self._grew = asyncio.Event()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _left() -> ApiError:
    return ApiError(409, "the answer was stopped before it began", code="answer_left")
