"""Samples of the line and of the lanes: is the line ever too long, and does anybody wait beside a free lane?"""

import asyncio
import time
from collections.abc import Callable

import redis.asyncio

from kakeya_router.store.keys import PoolKeys
from kakeya_router.store.session_record import PoolName, WorkerId

_SAMPLE_SECONDS = 0.05


class RoomWatch:
    """Attributes:
    longest_line: in members.
    longest_missed_seconds: the longest time in which all samples showed somebody waiting beside a free lane, and in
        which nobody got in: while callers get in one after the other, there is always a lane on its way to one.
    """

    def __init__(self, url: str, pool: str, num_admitted: Callable[[], int]) -> None:
        self._redis = redis.asyncio.Redis.from_url(url, decode_responses=True, protocol=2)
        self._keys = PoolKeys(PoolName(pool))
        self._num_admitted = num_admitted
        self.longest_line = 0
        self.longest_missed_seconds = 0.0
        self.num_samples = 0

    async def run(self) -> None:
        """Until cancelled."""
        missed_since: float | None = None
        admitted = -1
        async with self._redis:
            workers = [
                self._keys.worker(WorkerId(str(name))) for name in await self._redis.zrange(self._keys.workers, 0, -1)
            ]
            while True:
                line, free = await self._sample(workers)
                now = time.monotonic()
                if not (line and free) or admitted != self._num_admitted():
                    missed_since, admitted = None, self._num_admitted()
                if line and free:
                    missed_since = missed_since or now
                    self.longest_missed_seconds = max(self.longest_missed_seconds, now - missed_since)
                self.longest_line = max(self.longest_line, line)
                self.num_samples += 1
                await asyncio.sleep(_SAMPLE_SECONDS)

    async def _sample(self, workers: list[str]) -> tuple[int, int]:
        """Members in the line and free lanes at one moment."""
        async with self._redis.pipeline(transaction=True) as batch:
            batch.zcard(self._keys.queue)
            for worker in workers:
                batch.hmget(worker, "slab_bytes", "reserved_bytes", "lane_bytes")
            line, *ledgers = await batch.execute()
        return line, sum((int(slab) - int(reserved)) // int(lane) for slab, reserved, lane in ledgers)
