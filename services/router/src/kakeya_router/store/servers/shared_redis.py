"""redis-py over connections that all calls share: each command goes out at once, and answers come in that order."""

import asyncio
import copy
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import hiredis
from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.client import NEVER_DECODE

from kakeya_router.store.servers.one_server import pool_of, told
from kakeya_router.store.servers.redis_errors import NO_ANSWER, TooFewReplicas, is_read_only
from kakeya_router.store.servers.sentinels import Sentinels
from kakeya_router.store.servers.server import GENERATION, Command, Server
from kakeya_shared.settings.redis_url import Kind, RedisUrl

Connect = Callable[[], Awaitable[tuple[AbstractConnection, Server]]]


class SharedRedis(Redis):
    """Its commands raise what redis-py's raise, but each is tried once. A cancelled one is not taken back.

    redis-py has a connection for each command that waits, and to take one and to give it back is half of what a command
    costs. There are two here, since an answer of many bytes holds up those behind it: one whose answers are texts, and
    one whose answers are bytes (NEVER_DECODE).

    With Sentinel they go to the primary that it names, and end where that is another one.

    Args:
        timeout_seconds: of a connection's begin, and of an answer.
        num_replicas: that have what was written before the answer is given.
    """

    def __init__(self, url: str, timeout_seconds: float, num_replicas: int = 0) -> None:
        parsed = RedisUrl.parse(url)
        self._sentinels = Sentinels(parsed, timeout_seconds) if parsed.kind is Kind.SENTINEL else None
        self._url = url if parsed.kind is Kind.SERVER else parsed.server(*parsed.places[0])
        super().__init__(connection_pool=pool_of(self._url, timeout_seconds, is_text=True))
        self._timeout_seconds = timeout_seconds
        self._num_replicas = num_replicas
        self._links: dict[tuple[str, bool], Link] = {}  # by URL of its server (that of any, if but one serves)
        self._leaving: set[Link] = set()
        self._has_ended = False

    async def execute_command(self, *command: Any, **options: Any) -> Any:
        is_text = not options.pop(NEVER_DECODE, False)
        (answer,) = await self._answers([command], is_text)
        return self._read(command, answer, options)

    async def execute(self, commands: Sequence[Command]) -> list[Any]:
        """The answers to some commands in one round trip; not atomic. Raises what the first raises that fails."""
        answers = await self._answers(commands, is_text=True)
        return [self._read(command, answer, {}) for command, answer in zip(commands, answers, strict=True)]

    async def execute_apart(self, commands: Sequence[Command]) -> list[Any]:
        """As `execute`; what a command is refused with is in its place. Raises what the connection fails with."""
        answers = await self._answers(commands, is_text=True)
        return [
            answer if isinstance(answer, Exception) else self._read(command, answer, {})
            for command, answer in zip(commands, answers, strict=True)
        ]

    async def everywhere(self, *command: Any) -> list[Any]:
        """As `execute_command`, of each server that takes writes."""
        return [await self.execute_command(*command)]

    async def follow(self) -> None:
        """Ends connections to a server that is the primary no more; where nobody says that, they stay."""
        if self._sentinels is None:
            return
        with suppress(*NO_ANSWER):
            primary = await self._sentinels.primary()
            for link in self._links.values():
                if link.server and link.server != primary and link.server.generation <= primary.generation:
                    await link.end()

    async def drain(self, timeout_seconds: float) -> None:
        """Ends the connections, once all that is asked has its answer, or after so many seconds. Later commands raise
        ConnectionError.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while waiting := [link.answered() for link in self._links.values() if link.is_asked]:
                    await asyncio.gather(*waiting)
        self._has_ended = True
        await asyncio.gather(*(link.end() for link in {*self._links.values(), *self._leaving}))

    async def _answers(self, commands: Sequence[Command], is_text: bool) -> list[Any]:
        """Errors among them."""
        return await self._asked(self._url, commands, is_text)

    async def _asked(self, url: str, commands: Sequence[Command], is_text: bool) -> list[Any]:
        link = self._link(url, is_text)
        if not self._num_replicas:
            return await link.ask(commands)
        # Half the time, so that those behind it are not late with it.
        wait = ("WAIT", self._num_replicas, round(self._timeout_seconds * 500))
        *answers, num_there = await link.ask([*commands, wait])
        if isinstance(num_there, Exception):  # such as of one that becomes a replica meanwhile
            raise TooFewReplicas(str(num_there))
        if num_there < self._num_replicas:
            raise TooFewReplicas(f"{num_there} of {self._num_replicas} replicas have it")
        return answers

    def _link(self, url: str, is_text: bool) -> "Link":
        key = url, is_text
        link = self._links.get(key)
        if self._has_ended:
            raise exceptions.ConnectionError("the connections were ended")
        if link is None or link.is_over:
            self._leaving = {each for each in (*self._leaving, link) if each is not None and not each.has_ended}
            self._links[key] = link = Link(lambda: self._connect(url, is_text), self._timeout_seconds)
        return link

    async def _connect(self, url: str, is_text: bool) -> tuple[AbstractConnection, Server]:
        server = Server(url) if self._sentinels is None else await self._sentinels.primary()
        connection: Any = pool_of(server.url, self._timeout_seconds, is_text=is_text).make_connection()
        try:
            await connection.connect()
            if self._sentinels and (await told(connection, "ROLE"))[0] not in ("master", b"master"):
                raise exceptions.ConnectionError("what Sentinel names is no primary")
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection, server

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
