"""A small disk of Redis' own, which is full at times: Redis, which syncs each write there, ends at the next one."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.redis_server import LocalRedis, redis_on
from tests.small_disk import SmallDisk, small_disk

_MEBIBYTES = 256
_END_SECONDS = 30.0


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
def redis_disk(directory: Path) -> Iterator[RedisDisk]:
    """Below a directory; raises CannotMount."""
    with small_disk(directory / "redis", _MEBIBYTES) as disk, redis_on(disk.path) as redis:
        yield RedisDisk(redis, disk)
