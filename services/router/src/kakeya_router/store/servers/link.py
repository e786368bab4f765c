"""One connection that all calls share: each command goes out at once, and answers come in that order."""

import asyncio
import copy
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import hiredis
from redis import exceptions
from redis.asyncio.connection import AbstractConnection

from kakeya_router.store.servers.redis_errors import is_read_only

Command = Sequence[Any]
"""Its name and what it is given."""


class Generation:
    """See GENERATION."""


GENERATION: Final = Generation()
"""In a command: the generation of the very server that gets it."""

Connect = Callable[[], Awaitable[tuple[AbstractConnection, "Server"]]]


@dataclass(eq=False, slots=True)
class _Asked:
    num_commands: int
    heard: asyncio.Future[list[Any]]
    seconds: float  # of the loop's clock, when it was asked
    answers: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Server:
    """Where a connection goes to.

    Attributes:
        url: of the one server.
        generation: of the primary, as those say who choose it: each that takes over has a greater one than all before;
            0: nobody says it.
    """

    url: str
    generation: int = 0


class Link:
    """One connection. It begins at once, and ends where it breaks, has an answer too late, is told to, or has an
    answer that says that its server is no primary any more. What has no answer then fails with it.

    Args:
        connect: connects, and says to which server; raises what redis-py raises.
        timeout_seconds: of that, and of an answer.

    Attributes:
        server: None: it is not connected yet.
        is_over: nothing is asked over it any more.
    """

    def __init__(self, connect: Connect, timeout_seconds: float) -> None:
        self.has_ended = self.is_over = False
        self.server: Server | None = None
        self._connect = connect
        self._connection: Any = None
        self._timeout_seconds = timeout_seconds
        self._loop = asyncio.get_running_loop()
        self._unsent: list[bytes | Command] = []
        self._has_unsent = asyncio.Event()
        self._asked: deque[_Asked] = deque()
        self._began = 0.0
        self._is_late = False
        self._life = self._loop.create_task(self._live())

    def ask(self, commands: Sequence[Command]) -> asyncio.Future[list[Any]]:
        """The answers, errors among them. Commands run though the future is cancelled.

        Raises:
            TypeError: a part of a command is neither text nor bytes nor a number; nothing is sent.
        """
        packed = [_ready(command) for command in commands]
        asked = _Asked(len(packed), self._loop.create_future(), self._loop.time())
        self._unsent += packed
        self._asked.append(asked)
        self._has_unsent.set()
        return asked.heard

    @property
    def is_asked(self) -> bool:
        """Whether answers are to come."""
        return bool(self._asked)

    def answered(self) -> asyncio.Future[Any]:
        """Once what has been asked so far has its answer, or has failed."""
        return asyncio.gather(self.ask([("PING",)]), return_exceptions=True)

    def leave(self) -> None:
        """Ends once what was asked has its answer."""
        if not self.is_over:
            self.is_over = True
            self.ask([("PING",)])  # whose answer comes last

    async def end(self) -> None:
        """What is still asked fails."""
        if not self.has_ended:
            self._life.cancel()
        await asyncio.wait([self._life])

    async def _live(self) -> None:
        writing = looking = None
        error: Exception | None = None
        try:
            async with asyncio.timeout(self._timeout_seconds):
                self._connection, self.server = await self._connect()
            self._began = self._loop.time()
            writing, looking = self._loop.create_task(self._write()), self._loop.create_task(self._look())
            await self._hear()
        except asyncio.CancelledError:
            if self._is_late:
                error = exceptions.TimeoutError("an answer took too long")
        except Exception as why:
            error = why
        self.has_ended = self.is_over = True
        while self._asked:
            heard = self._asked.popleft().heard
            if not heard.done():
                heard.set_exception(copy.copy(error or exceptions.ConnectionError("the connection was ended")))
        for task in filter(None, (writing, looking)):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)  # that it cannot write, is heard by `_hear` too
        if self._connection is not None:
            await self._connection.disconnect(nowait=error is not None)

    async def _write(self) -> None:
        while await self._has_unsent.wait():
            self._has_unsent.clear()
            unsent, self._unsent = self._unsent, []
            written = b"".join(each if isinstance(each, bytes) else self._with_generation(each) for each in unsent)
            await self._connection.send_packed_command(written, check_health=False)

    def _with_generation(self, command: Command) -> bytes:
        generation = self.server.generation if self.server else 0
        return _packed([generation if part is GENERATION else part for part in command])

    async def _hear(self) -> None:
        while self._asked or not self.is_over:
            try:
                answer = await self._connection.read_response(timeout=math.inf, disconnect_on_error=False)
            except exceptions.ResponseError as error:
                answer = error
                if is_read_only(error):
                    self.leave()
            if not self._asked:
                raise exceptions.ConnectionError("an answer to nothing that was asked")
            asked = self._asked[0]
            asked.answers.append(answer)
            if len(asked.answers) == asked.num_commands:
                self._asked.popleft()
                if not asked.heard.done():
                    asked.heard.set_result(asked.answers)

    async def _look(self) -> None:
        """Whether the oldest answer is late, and again when the next one might be."""
        while True:
            now = self._loop.time()
            due = max(self._began, self._asked[0].seconds if self._asked else now) + self._timeout_seconds
            if due <= now:
                break
            await asyncio.sleep(due - now)
        self._is_late = True
        self._life.cancel()


def _packed(command: Command) -> bytes:
    name, *rest = command
    packed: bytes = hiredis.pack_command((*name.split(), *rest))  # some names have several words
    return packed


def _ready(command: Command) -> bytes | Command:
    """Packed, or as it is where that takes the server's generation. Raises TypeError, see `Link.ask`."""
    try:
        return _packed(command)
    except TypeError:
        if GENERATION in command:
            return command
        raise
