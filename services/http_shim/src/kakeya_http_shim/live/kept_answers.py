"""Answers that outlive their connection: a page that is loaded anew in the middle of one goes on with it.

Each is a request to an application of this process, whose client is kept here: what it sends is read by each page
that connects, from its first byte on. Where none does for a while, that client leaves.
"""

import asyncio
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kakeya_http_shim import error_shapes
from kakeya_http_shim.problems import ApiError, too_many
from kakeya_shared.process.detached_tasks import DetachedTasks, unheard

ALONE_SECONDS: Final = 30.0
"""How long an answer goes on although nobody reads it: as long as a page takes to be loaded anew, and more."""
KEPT_SECONDS: Final = 60.0
"""How long one that has ended can be read, where there is room for it."""
MAX_KEPT: Final = 256
"""Answers at once; some hundred KB each. One that has ended makes room for one that is asked for."""


class KeptAnswer:
    """One answer.

    Args:
        api_key: of who asked for it; nobody else can read it.

    Attributes:
        is_over: all of it is there.
    """

    def __init__(self, api_key: str) -> None:
        self.api_key = api_key
        self.is_over = False
        self._messages: list[Message] = []
        self._num_readers = 0
        self._grew = asyncio.Event()
        self._leaves = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, app: ASGIApp, scope: Scope, body: bytes) -> None:
        """Has it made; to its end, or until its client leaves."""
        request: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

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
            if not self._num_readers:
                self._timer = asyncio.get_running_loop().call_later(ALONE_SECONDS, self.leave)

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


class KeptAnswers:
    """The answers that are under way, and those that have just ended, by ids that their clients have made.

    Args:
        app: answers.
        tasks: of this server, which end with it.
    """

    def __init__(self, app: ASGIApp, tasks: DetachedTasks) -> None:
        self._app = app
        self._tasks = tasks
        self._answers: dict[str, KeptAnswer] = {}

    def ask(self, answer_id: str, scope: Scope, body: bytes) -> KeptAnswer:
        """Begins an answer. Raises ApiError: there is one of this id, or there are too many."""
        if answer_id in self._answers:
            raise ApiError(409, "an answer of this id was asked for already", code="answer_exists")
        if len(self._answers) >= MAX_KEPT:
            self._make_room()
        answer = self._answers[answer_id] = KeptAnswer(scope["state"]["api_key"])
        unheard(self._tasks.start(self._run(answer_id, answer, scope, body)))
        return answer

    def _make_room(self) -> None:
        """Forgets the answer that was asked for first of those that have ended. Raises ApiError: none has."""
        ended = next((answer_id for answer_id, answer in self._answers.items() if answer.is_over), None)
        if ended is None:
            raise too_many(f"{MAX_KEPT} answers of the live page are under way, no more at once")
        del self._answers[ended]

    def find(self, answer_id: str, api_key: str) -> KeptAnswer:
        """Raises ApiError: there is none of this id, or it is another key's."""
        answer = self._answers.get(answer_id)
        if answer is None or answer.api_key != api_key:
            raise ApiError(404, "there is no such answer, or not any more", code="answer_not_found")
        return answer

    async def _run(self, answer_id: str, answer: KeptAnswer, scope: Scope, body: bytes) -> None:
        try:
            await answer.run(self._app, scope, body)
        finally:
            asyncio.get_running_loop().call_later(KEPT_SECONDS, self._forget, answer_id, answer)

    def _forget(self, answer_id: str, answer: KeptAnswer) -> None:
        if self._answers.get(answer_id) is answer:  # else it made room, and another may have its id
            del self._answers[answer_id]
