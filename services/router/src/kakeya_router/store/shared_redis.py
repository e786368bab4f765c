"""redis-py over connections that all calls share: each command goes out at once, and answers come in that order."""

import asyncio
import copy
import math
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import hiredis
from redis import exceptions
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.client import NEVER_DECODE

Command = Sequence[Any]
"""Its name and what it is given."""


class SharedRedis(Redis):
    """Its commands raise what redis-py's raise, but each is tried once. A cancelled one is not taken back.

    redis-py has a connection for each command that waits, and to take one and to give it back is half of what a command
    costs. There are two here, since an answer of many bytes holds up those behind it: one whose answers are texts, and
    one whose answers are bytes (NEVER_DECODE).

    Args:
        timeout_seconds: of a connection's begin, and of an answer.
    """

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._pools: dict[bool, Any] = {  # redis-py types few of their methods
            is_text: ConnectionPool.from_url(
                url,
                decode_responses=is_text,
                protocol=2,
                socket_timeout=None,
                socket_connect_timeout=timeout_seconds,
                retry=Retry(NoBackoff(), 0),
            )
            for is_text in (True, False)
        }
        super().__init__(connection_pool=self._pools[True])
        self._timeout_seconds = timeout_seconds
        self._links: dict[bool, Link] = {}
        self._has_ended = False

    async def execute_command(self, *command: Any, **options: Any) -> Any:
        is_text = not options.pop(NEVER_DECODE, False)
        (answer,) = await self._link(is_text).ask([command])
        return self._read(command, answer, options)

    async def execute(self, commands: Sequence[Command]) -> list[Any]:
        """The answers to some commands in one round trip; not atomic. Raises what the first raises that fails."""
        answers = await self._link(is_text=True).ask(commands)
        return [self._read(command, answer, {}) for command, answer in zip(commands, answers, strict=True)]

    async def drain(self, timeout_seconds: float) -> None:
        """Ends the connections, once all that is asked has its answer, or after so many seconds. Later commands raise
        ConnectionError.
        """
        links = self._links.values()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while waiting := [link.answered() for link in links if link.is_asked]:
                    await asyncio.gather(*waiting)
        self._has_ended = True
        await asyncio.gather(*(link.end() for link in links))

    def _link(self, is_text: bool) -> "Link":
        link = self._links.get(is_text)
        if self._has_ended:
            raise exceptions.ConnectionError("the connections were ended")
        if link is None or link.has_ended:
            self._links[is_text] = link = Link(self._pools[is_text].make_connection(), self._timeout_seconds)
        return link

    def _read(self, command: Command, answer: Any, options: dict[str, Any]) -> Any:
        if isinstance(answer, Exception):
            raise answer
        options.pop("keys", None)  # for redis-py's cache
        read = self.response_callbacks.get(command[0])
        return read(answer, **options) if read else answer


@dataclass(eq=False, slots=True)
class _Asked:
    num_commands: int
    heard: asyncio.Future[list[Any]]
    seconds: float  # of the loop's clock, when it was asked
    answers: list[Any] = field(default_factory=list)


class Link:
    """One connection. It begins at once, and ends where it breaks, has an answer too late, or is told to; what has no
    answer then fails with it.
    """

    def __init__(self, connection: AbstractConnection, timeout_seconds: float) -> None:
        self.has_ended = False
        self._connection: Any = connection
        self._timeout_seconds = timeout_seconds
        self._loop = asyncio.get_running_loop()
        self._unsent: list[bytes] = []
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
        packed = [hiredis.pack_command((*name.split(), *rest)) for name, *rest in commands]  # some have several words
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
                await self._connection.connect()
            self._began = self._loop.time()
            writing, looking = self._loop.create_task(self._write()), self._loop.create_task(self._look())
            await self._hear()
        except asyncio.CancelledError:
            if self._is_late:
                error = exceptions.TimeoutError("an answer took too long")
        except Exception as why:
            error = why
        self.has_ended = True
        while self._asked:
            heard = self._asked.popleft().heard
            if not heard.done():
                heard.set_exception(copy.copy(error or exceptions.ConnectionError("the connection was ended")))
        for task in filter(None, (writing, looking)):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)  # that it cannot write, is heard by `_hear` too
        await self._connection.disconnect(nowait=error is not None)

    async def _write(self) -> None:
        while await self._has_unsent.wait():
            self._has_unsent.clear()
            unsent, self._unsent = b"".join(self._unsent), []
            await self._connection.send_packed_command(unsent, check_health=False)

    async def _hear(self) -> None:
        while True:
            try:
                answer = await self._connection.read_response(timeout=math.inf, disconnect_on_error=False)
            except exceptions.ResponseError as error:
                answer = error
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
