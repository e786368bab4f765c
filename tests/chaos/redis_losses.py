"""A Redis that loses what it said it had."""

import asyncio
import random
from collections.abc import Callable

import redis

from tests.redis_server import RedisServer, data_of, set_back

_TURN_SECONDS = (0.5, 4.0)
_MOST_KEYS = 5
_JOURNALS = "kakeya:{*}:journal:*"
_OF_POOLS = "kakeya:{*}:*"
_VOCABULARY = 1_000


class RedisLosses:
    """Losses that no log of Redis tells of."""

    def __init__(self, server: RedisServer, draw: random.Random) -> None:
        self._server = server
        self._draw = draw

    async def set_back(self) -> None:
        """A backup of about a turn ago is put back."""
        data = await asyncio.to_thread(data_of, self._server.url)
        await asyncio.sleep(self._draw.uniform(*_TURN_SECONDS))
        await asyncio.to_thread(set_back, self._server.url, data)

    async def evict(self) -> None:
        """Some keys of whatever kind."""
        await asyncio.to_thread(self._change, _OF_POOLS, lambda store, key: store.delete(key))

    async def overwrite(self) -> None:
        """The last tokens of some journals become others."""
        await asyncio.to_thread(self._change, _JOURNALS, self._overwrite)

    def _change(self, pattern: str, change: Callable[[redis.Redis, bytes], object]) -> None:
        with redis.Redis.from_url(self._server.url, protocol=2) as store:
            keys = sorted(store.scan_iter(pattern, count=1000))
            for key in self._draw.sample(keys, min(len(keys), self._draw.randint(1, _MOST_KEYS))):
                change(store, key)

    def _overwrite(self, store: redis.Redis, key: bytes) -> None:
        tokens = b"".join(self._draw.randrange(_VOCABULARY).to_bytes(4, "little") for _ in range(8))
        store.eval(_OVERWRITE, 1, key, tokens)


_OVERWRITE = """
local length = redis.call('STRLEN', KEYS[1])
if length >= #ARGV[1] then
  redis.call('SETRANGE', KEYS[1], length - #ARGV[1], ARGV[1])
end
"""


def expire_all(url: str) -> None:
    """Has the time of all sessions come: of those that were closed and are there again since Redis was set back, and of
    what is left of those that were evicted. Else they would stay for their time-out.

    Lists that name nothing but what was evicted are removed: a few bytes of each such loss stay in Redis for good.
    """
    with redis.Redis.from_url(url, protocol=2, decode_responses=True) as store:
        for key in list(store.scan_iter(_OF_POOLS, count=1000)):
            prefix, kind, session_id = [*key.rsplit(":", 2), ""][:3]
            if key.endswith(":heirs") or kind == "sessions":
                store.delete(key)
            elif kind in ("session", "journal", "op"):
                store.zadd(f"{prefix}:expiry", {session_id: 1})
