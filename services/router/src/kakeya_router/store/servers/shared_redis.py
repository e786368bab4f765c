"""redis-py over connections that all calls share."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.client import NEVER_DECODE

from kakeya_router.store.servers.link import Command, Link, Server
from kakeya_router.store.servers.one_server import pool_of, told
from kakeya_router.store.servers.redis_errors import NO_ANSWER, TooFewReplicas
from kakeya_router.store.servers.sentinels import Sentinels
from kakeya_shared.settings.redis_url import Kind, RedisUrl


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

    def _link(self, url: str, is_text: bool) -> Link:
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
