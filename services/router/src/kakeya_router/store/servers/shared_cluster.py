"""Shared connections to each node of a Redis Cluster."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis import exceptions
from redis.asyncio.connection import AbstractConnection
from redis.crc import key_slot

from kakeya_router.store.keys import SCHEMA
from kakeya_router.store.servers.redis_errors import NO_ANSWER
from kakeya_router.store.servers.server import Command, Server
from kakeya_router.store.servers.shared_redis import SharedRedis
from kakeya_router.store.servers.slots import SlotMap, Slots, slot_of
from kakeya_shared.settings.redis_url import RedisUrl

# From the node that had a slot to the one that has it; a second one, if that was a moment ago.
_MOVES = 3
_SLOT_OF_LAYOUT = key_slot(SCHEMA.encode())


class SharedCluster(SharedRedis):
    """As `SharedRedis`; each command goes to the node that has the slot of its key, those that are asked at once in one
    round trip to each node. One without a key goes where another of them goes, else to the node of the layout.

    A command that was sent to the wrong node has not run there, and is sent on.
    """

    def __init__(self, url: str, timeout_seconds: float, num_replicas: int = 0) -> None:
        super().__init__(url, timeout_seconds, num_replicas)
        self._slots = Slots(RedisUrl.parse(url), timeout_seconds)
        self._map: SlotMap | None = None  # None: it is to be read before the next command
        self._reading: asyncio.Future[SlotMap] | None = None

    async def everywhere(self, *command: Any) -> list[Any]:
        urls = (await self._where()).primaries
        answers = await asyncio.gather(*(self._asked(url, [command], True) for url in urls))
        return [self._read(command, answer, {}) for (answer,) in answers]

    async def follow(self) -> None:
        with suppress(*NO_ANSWER):
            self._map = await self._read_map()
            for (url, _), link in self._links.items():
                server = self._map.servers.get(url)
                if link.server and link.server != server:
                    if server is None:
                        await link.end()
                    else:  # it is there, with another generation
                        link.leave()

    async def drain(self, timeout_seconds: float) -> None:
        await super().drain(timeout_seconds)
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _answers(self, commands: Sequence[Command], is_text: bool) -> list[Any]:
        found: list[Any] = [None] * len(commands)
        left = [*range(len(commands))]
        for _ in range(_MOVES):
            parts = _parted(await self._where(), commands, left)
            asked = [self._asked(url, [commands[at] for at in places], is_text) for url, places in parts.items()]
            try:
                answers = await asyncio.gather(*asked)
            except NO_ANSWER:
                self._map = None  # maybe another node has its slots by now
                raise
            for places, some in zip(parts.values(), answers, strict=True):
                for at, answer in zip(places, some, strict=True):
                    found[at] = answer
            left = [at for at in left if isinstance(found[at], exceptions.MovedError)]
            if not left:
                break
            self._map = None
        for at, answer in enumerate(found):
            if isinstance(answer, exceptions.AskError) and not isinstance(answer, exceptions.MovedError):
                found[at] = await self._elsewhere(answer, commands[at], is_text)
        return found

    async def _elsewhere(self, answer: exceptions.AskError, command: Command, is_text: bool) -> Any:
        """At the node to which a slot is being moved, for this command alone."""
        url = self._slots.url_of(answer.host, answer.port)
        _, found = await self._asked(url, [("ASKING",), command], is_text)
        return found

    async def _where(self) -> SlotMap:
        if self._map is None:
            self._map = await self._read_map()
        return self._map

    async def _read_map(self) -> SlotMap:
        """All who want it at once wait for the same."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(self._slots.read())
            self._reading.add_done_callback(lambda read: read.cancelled() or read.exception())  # nobody may wait
        return await asyncio.shield(self._reading)

    async def _connect(self, url: str, is_text: bool) -> tuple[AbstractConnection, Server]:
        known = (await self._where()).servers.get(url)
        connection, server = await super()._connect(url, is_text)
        return connection, known or server


def _parted(known: SlotMap, commands: Sequence[Command], places: Sequence[int]) -> dict[str, list[int]]:
    """Some commands, by their places, by the URL of the node to which they go.

    Raises:
        ClusterDownError: nobody has the slot of one.
    """
    slots = {at: slot_of(commands[at]) for at in places}
    without = next((slot for slot in slots.values() if slot is not None), _SLOT_OF_LAYOUT)
    parts: dict[str, list[int]] = defaultdict(list)
    for at, slot in slots.items():
        url = known.owners.get(without if slot is None else slot)
        if url is None:
            raise exceptions.ClusterDownError("CLUSTERDOWN a slot is not served")
        parts[url].append(at)
    return parts
