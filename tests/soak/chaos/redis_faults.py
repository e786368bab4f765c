"""A Redis that loses what it said it had, or whose disk is full."""

import asyncio
import random
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import redis

from tests.redis_server import LocalRedis, RedisServer, data_of, redis_on, set_back
from tests.small_disk import CannotMount, SmallDisk, small_disk

_MEBIBYTES = 256
_END_SECONDS = 30.0
_TURN_SECONDS = (0.5, 4.0)
_MOST_KEYS = 5
_JOURNALS = "kakeya:{*}:journal:*"
_OF_POOLS = "kakeya:{*}:*"
_VOCABULARY = 1_000
_OF_SESSIONS = frozenset({"session", "journal", "op"})


class RedisLosses:
    """Losses that no log of Redis tells of.

    Attributes:
        evicted: keys that were.
    """

    def __init__(self, server: RedisServer, draw: random.Random) -> None:
        self._server = server
        self._draw = draw
        self.evicted: set[str] = set()

    async def set_back(self) -> None:
        """A backup of about a turn ago is put back."""
        data = await asyncio.to_thread(data_of, self._server.url)
        await asyncio.sleep(self._draw.uniform(*_TURN_SECONDS))
        await asyncio.to_thread(set_back, self._server.url, data)

    async def evict(self) -> None:
        """Some keys of whatever kind."""
        await asyncio.to_thread(self._change, _OF_POOLS, self._evict)

    async def overwrite(self) -> None:
        """The last tokens of some journals become others."""
        await asyncio.to_thread(self._change, _JOURNALS, self._overwrite)

    def _change(self, pattern: str, change: Callable[[redis.Redis, bytes], object]) -> None:
        with redis.Redis.from_url(self._server.url, protocol=2) as store:
            keys = sorted(store.scan_iter(pattern, count=1000))
            for key in self._draw.sample(keys, min(len(keys), self._draw.randint(1, _MOST_KEYS))):
                change(store, key)

    def _evict(self, store: redis.Redis, key: bytes) -> None:
        store.delete(key)
        self.evicted.add(key.decode())

    def _overwrite(self, store: redis.Redis, key: bytes) -> None:
        tokens = b"".join(self._draw.randrange(_VOCABULARY).to_bytes(4, "little") for _ in range(8))
        store.eval(_OVERWRITE, 1, key, tokens)


_OVERWRITE = """
local length = redis.call('STRLEN', KEYS[1])
if length >= #ARGV[1] then
  redis.call('SETRANGE', KEYS[1], length - #ARGV[1], ARGV[1])
end
"""


def expire_all(url: str, evicted: Collection[str]) -> None:
    """Has the time of all sessions come: of those that were closed and are there again since Redis was set back, and of
    what is left of those that were evicted, were it a line in a list. Else they would stay for their time-out.

    Lists that name nothing but what was evicted are removed: a few bytes of each such loss stay in Redis for good.
    """
    with redis.Redis.from_url(url, protocol=2, decode_responses=True) as store:
        for key in list(store.scan_iter(_OF_POOLS, count=1000)):
            prefix, kind, session_id = [*key.rsplit(":", 2), ""][:3]
            if key.endswith(":heirs") or kind == "sessions":
                store.delete(key)
            elif kind in _OF_SESSIONS:
                store.zadd(f"{prefix}:expiry", {session_id: 1})
        for prefix, kind, session_id in ([*key.rsplit(":", 2), ""][:3] for key in evicted):
            if kind in _OF_SESSIONS:
                store.zadd(f"{prefix}:expiry", {session_id: 1}, xx=True)


class RedisDisk:
    """Of a Redis that routers use, whose probes write to it once in a while."""

    def __init__(self, redis: LocalRedis, disk: SmallDisk) -> None:
        self.redis = redis
        self._disk = disk

    async def fill(self) -> None:
        """Until Redis has ended of it."""
        await asyncio.to_thread(self._disk.fill)
        if not await asyncio.to_thread(self.redis.wait_ended, _END_SECONDS):
            raise AssertionError("Redis outlives a full disk")

    async def heal(self) -> None:
        """Makes room, and starts it again, as a supervisor does."""
        await asyncio.to_thread(self._disk.empty)
        await asyncio.to_thread(self.redis.start)


@contextmanager
def redis_disk(directory: Path) -> Iterator[RedisDisk | None]:
    """Below a directory; None, which is said, where no disk can be made: then Redis' disk is never full."""
    with ExitStack() as stack:
        try:
            disk = stack.enter_context(small_disk(directory / "redis", _MEBIBYTES))
        except CannotMount as error:
            print(f"Redis' disk is not filled: {error}", file=sys.stderr)
            yield None
        else:
            server = stack.enter_context(redis_on(disk.path))
            yield RedisDisk(server, disk)
