"""Conversations that nobody goes on with: so many are kept as fit, and none after their time."""

import asyncio
import time
from collections.abc import Iterator
from itertools import count

from redis.asyncio import Redis

from kakeya_router.store.keys import PoolKeys
from kakeya_router.store.session_record import PoolName
from tests.soak.crowd_http.client import Broken, Client, Refused
from tests.soak.crowd_http.ground import Ground
from tests.soak.crowd_http.part import Facts, Part
from tests.soak.crowd_http.talk import Talk, asked
from tests.soak.progress import Progress

LANES = 16
_NUM_AT_ONCE = 8
_NUM_TURNS = 2  # after one it may be closed instead of parked
_FIELDS = asked(24)
_SAMPLE_SECONDS = 0.05
_MAX_ABOVE_SECONDS = 5.0
"""A pass of the reaper closes what is too many, each second."""


class KeptRun(Part):
    """Each conversation has two turns and is left: its session is parked where another wants its lane. The files of the
    store are looked at all along. It is a violation if they ever have more bytes than the bound, if no session was
    closed for a bound, or if anything of any conversation is left when they have been idle for their time; and it is
    late if more sessions than the other bound were parked for longer than 5 s.

    Args:
        max_bytes: what the router was told as `--snapshot-bytes`.
        max_parked: likewise, `--parked-sessions`.
    """

    def __init__(self, ground: Ground, progress: Progress, *, max_bytes: int, max_parked: int) -> None:
        super().__init__(ground, progress)
        self._max_bytes, self._max_parked = max_bytes, max_parked
        self._most_bytes = self._most_parked = self._num_samples = 0
        self._most_above_seconds = 0.0

    async def run(self, num_talks: int, left_seconds: float) -> Facts:
        """Facts. After `left_seconds` nothing may be left."""
        self.begin(num_talks, "conversations", lambda: self.tally.num_counted // _NUM_TURNS)
        watching = asyncio.create_task(self._watch())
        numbers = iter(range(num_talks))
        async with asyncio.TaskGroup() as group:
            for _ in range(_NUM_AT_ONCE):
                group.create_task(self._converse(numbers))
        self.progress.what = "waiting until their time is over"
        _, settled_seconds = await asyncio.to_thread(self.leave_nothing, left_seconds, self._ground.left_files)
        assert not watching.done(), "nobody watched the store to the end"
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)  # its connection is closed then
        self.read_logs()
        self._check()
        return {
            "conversations": num_talks,
            "lanes": LANES,
            "by_state": self.tally.by_what(),
            "snapshot_bytes": {"bound": self._max_bytes, "most": self._most_bytes},
            "parked_sessions": {"bound": self._max_parked, "most": self._most_parked},
            "seconds_above": round(self._most_above_seconds, 2),
            "samples": self._num_samples,
            "closed_for_a_bound": self._num_closed(),
            "settled_seconds": round(settled_seconds, 1),
        }

    async def _converse(self, numbers: Iterator[int]) -> None:
        async with Client() as client:
            for number in numbers:
                talk = Talk(number)
                for turn in range(1, _NUM_TURNS + 1):
                    talk.says(f"This is conversation {number} of many. What comes in its turn {turn}?")
                    address = self._ground.addresses[(number + turn) % 2]
                    try:
                        told = await client.plain(address, talk.messages, **_FIELDS)
                    except (Refused, Broken, AssertionError) as error:
                        self.refused(talk, error)
                        break
                    self.answered(talk, told, [*talk.faults(told)])

    async def _watch(self) -> None:
        """Until cancelled."""
        parked, above_since = PoolKeys(PoolName(self.pool.name)).parked, None
        async with Redis.from_url(self.made.redis.url, protocol=2) as store:
            for self._num_samples in count(1):
                num_bytes = await asyncio.to_thread(self._ground.num_stored_bytes)
                num_parked = await store.zcard(parked)
                now = time.monotonic()
                self._most_bytes = max(self._most_bytes, num_bytes)
                self._most_parked = max(self._most_parked, num_parked)
                above_since = (above_since or now) if num_parked > self._max_parked else None
                if above_since is not None:
                    self._most_above_seconds = max(self._most_above_seconds, now - above_since)
                await asyncio.sleep(_SAMPLE_SECONDS)

    def _check(self) -> None:
        if self._most_bytes > self._max_bytes:
            self.tally.violate(f"the store had {self._most_bytes:,} bytes, and may have {self._max_bytes:,}")
        if self._most_above_seconds > _MAX_ABOVE_SECONDS:
            self.late.append(f"for {self._most_above_seconds:.1f} s more than {self._max_parked} sessions were parked")
        if not self._num_closed():
            self.tally.violate("neither bound was reached: this tested nothing")

    def _num_closed(self) -> int:
        told = "parked session closed, too much is kept"
        return sum(router.log.read_text().count(told) for router in self.made.routers)
