"""The one board of a router at which all viewers look: it is kept while there is one, and nothing is read before."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar, Final, Self

from kakeya_router.contract import refusals
from kakeya_router.live.sampling import Changes, Sampling
from kakeya_router.live.views import Key, News, Sight, Thing
from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.keys import CHANGED
from kakeya_router.store.servers.subscription import messages
from kakeya_router.store.sessions.watch_store import WatchStore
from kakeya_router.workers.fleet import Fleet
from kakeya_shared.process.bulletin import Bulletin, Keeper

TICK_SECONDS: Final = 0.5
"""From one reading to the next: half of a worker's heartbeat, and as fast as numbers can be followed."""
QUIET_SECONDS: Final = 10.0
"""Where nothing changes for so long, a viewer is told just that: it sees that the router is there."""


@dataclass(eq=False)
class Board:
    """Shows viewers what runs and what changes. Who is slow gets the latest of each thing that has changed meanwhile.

    It remembers nothing of a viewer: each holds a version of the one log.
    """

    _store: WatchStore
    _fleet: Fleet
    _changes: Changes
    _: KW_ONLY
    late_ms: int
    tick_seconds: ClassVar[float] = TICK_SECONDS
    quiet_seconds: ClassVar[float] = QUIET_SECONDS
    _sampling: Sampling | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)

    @classmethod
    def over(cls, redis: RedisConnection, fleet: Fleet, url: str, timeout_seconds: float, late_ms: int) -> Self:
        """The board of what one Redis holds; changes come over a connection of their own."""
        return cls(WatchStore(redis), fleet, lambda: messages(url, timeout_seconds, CHANGED), late_ms=late_ms)

    def __post_init__(self) -> None:
        self._keeper: Keeper[Key, Thing] = Keeper(self._keep)

    async def watch(self, sight: Sight, interval_seconds: float) -> AsyncGenerator[News, None]:
        """First everything, then what changes, and now and then that nothing does.

        Args:
            interval_seconds: at least, from one news to the next.

        Raises:
            StoreUnavailable, Draining: look again, at this router or another.
        """
        if self._closed:
            raise refusals.draining()
        async with self._keeper.looking() as bulletin:
            news = await next_news(bulletin, sight, None)
            while True:
                yield news
                await asyncio.sleep(interval_seconds)
                try:
                    async with asyncio.timeout(self.quiet_seconds):
                        news = await next_news(bulletin, sight, news.version)
                except TimeoutError:
                    news = News(begins=False, version=news.version)

    @property
    def at_ms(self) -> int:
        """As of when the latest news are, by Redis's clock."""
        return 0 if self._sampling is None else self._sampling.at_ms

    def close(self) -> None:
        """Ends all looking, also what is to come, with Draining."""
        self._closed = True
        self._keeper.end(refusals.draining())

    async def _keep(self, bulletin: Bulletin[Key, Thing]) -> None:
        seconds, late_ms = self.tick_seconds, self.late_ms
        sampling = Sampling(self._store, self._fleet, self._changes, bulletin, late_ms=late_ms, tick_seconds=seconds)
        self._sampling = sampling
        await sampling.run()


async def next_news(bulletin: Bulletin[Key, Thing], sight: Sight, seen: int | None) -> News:
    """What is new to a viewer, once that is something."""
    while True:
        unseen = await bulletin.unseen(seen)
        news = sight.news(unseen)
        if news.begins or not news.is_empty:
            return news
        seen = unseen.version
