"""Which server is the primary now, as some Sentinels say."""

import asyncio
from dataclasses import dataclass

from redis import exceptions
from redis.asyncio.connection import AbstractConnection

from kakeya_router.store.servers.one_server import asking, told
from kakeya_router.store.servers.redis_errors import NO_ANSWER
from kakeya_router.store.servers.server import Server
from kakeya_shared.settings.redis_url import RedisUrl

_TRIES = 3


@dataclass(frozen=True, slots=True)
class Sentinels:
    """Those that a URL names. All are asked at once: one that was cut off knows of no failover since."""

    _url: RedisUrl
    _timeout_seconds: float

    async def primary(self) -> Server:
        """The latest that any of them names, among the first answers of a majority.

        Its generation is Sentinel's configuration epoch: no failover has that of another one.

        Raises:
            ConnectionError: none of them names one in time.
        """
        answers = [asyncio.ensure_future(self._named_by(host, port)) for host, port in self._url.places]
        try:
            found: list[Server] = []
            errors: list[Exception] = []
            for next_one in asyncio.as_completed(answers):
                try:
                    found.append(await next_one)
                except (*NO_ANSWER, exceptions.RedisError) as error:
                    errors.append(error)
                if len(found) > len(answers) // 2:
                    break
        finally:
            for each in answers:
                each.cancel()
            await asyncio.gather(*answers, return_exceptions=True)
        if not found:
            raise exceptions.ConnectionError(f"no Sentinel names the primary: {errors[0]}")
        return max(found, key=lambda server: server.generation)

    async def _named_by(self, host: str, port: int) -> Server:
        """Raises what redis-py raises."""
        name = self._url.name
        async with (
            # Two of them are silent for longer than a connection's begin may take.
            asyncio.timeout(self._timeout_seconds / 2),
            asking(self._url.sentinel(host, port), self._timeout_seconds) as sentinel,
        ):
            generation = await _generation(sentinel, name)
            for _ in range(_TRIES):
                place = await told(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
                # The address and the generation come one by one: of a failover between them neither is told.
                before, generation = generation, await _generation(sentinel, name)
                if place and before == generation:
                    return Server(self._url.server(place[0], int(place[1])), generation)
        raise exceptions.ConnectionError("a failover is going on")


async def _generation(sentinel: AbstractConnection, name: str) -> int:
    state = await told(sentinel, "SENTINEL", "MASTER", name)  # names and values in turn
    return int(state[state.index("config-epoch") + 1])
