"""What runs, from one stream of the runtime for each key that looks, however many pages do."""

import asyncio
from collections.abc import AsyncGenerator

from kakeya import AsyncClient, WatchEvent
from kakeya_http_shim.live import board_json
from kakeya_http_shim.live.board_json import Key, Thing
from kakeya_shared.process.bulletin import Bulletin, Keeper


class Feed:
    """One stream of the runtime on a bulletin.

    Args:
        client: with the key of those who look.

    Attributes:
        at: of the latest news, Unix time in seconds by the runtime's clock.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self.at = 0.0
        self.keeper: Keeper[Key, Thing] = Keeper(self._keep)

    async def _keep(self, bulletin: Bulletin[Key, Thing]) -> None:
        outdated: set[Key] = set()
        async for event in self._client.watch():
            if event.begins:
                outdated = {*bulletin.log.keys()}
            outdated -= _apply(bulletin, event)
            self.at = event.at
            if not event.continues:
                for key in outdated:
                    bulletin.log.remove(key)
                outdated = set()
                bulletin.publish()


def _apply(bulletin: Bulletin[Key, Thing], event: WatchEvent) -> set[Key]:
    """Returns what is there."""
    there: dict[Key, Thing] = {("session", session.session_id): session for session in event.sessions}
    there |= {("worker", worker.incarnation): worker for worker in event.workers}
    there |= {("queue", queue.pool): queue for queue in event.queues}
    if event.fleet is not None:
        there["fleet", ""] = event.fleet
    for key, thing in there.items():
        bulletin.log.put(key, thing)
    gone = {"session": event.gone_session_ids, "worker": event.gone_incarnations, "queue": event.gone_pools}
    for kind, names in gone.items():
        for name in names:
            bulletin.log.remove((kind, name))
    return {*there}


class Feeds:
    """Gives pages their events. What a key may see the router says; while no page looks, nothing is asked.

    Args:
        client: of the runtime, without a key of its own.
        quiet_seconds: where nothing changes for so long, that is told.
        stop: set when this server ends; all events end then.
    """

    def __init__(self, client: AsyncClient, quiet_seconds: float, stop: asyncio.Event) -> None:
        self._client = client
        self._quiet_seconds = quiet_seconds
        self._stop = stop
        self._feeds: dict[str, Feed] = {}

    @property
    def num_streams(self) -> int:
        """Of the runtime."""
        return len(self._feeds)

    async def events(self, api_key: str) -> AsyncGenerator[board_json.Event | None, None]:
        """First everything, then what changes, and None where nothing does for a while; ends when the server does.

        Raises:
            KakeyaError: the runtime is away, or does not know the key any more.
        """
        feed = self._feeds.setdefault(api_key, Feed(self._client.with_api_key(api_key)))
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            async with feed.keeper.looking() as bulletin:
                seen: int | None = None
                while True:
                    news = asyncio.ensure_future(bulletin.unseen(seen))
                    try:
                        await asyncio.wait(
                            (news, stopped), timeout=self._quiet_seconds, return_when=asyncio.FIRST_COMPLETED
                        )
                    finally:
                        news.cancel()
                    if stopped.done():
                        return
                    if not news.done():
                        yield None
                        continue
                    unseen = news.result()
                    seen = unseen.version
                    yield board_json.event(unseen, feed.at)
        finally:
            stopped.cancel()
            if not feed.keeper.is_looked_at:
                self._feeds.pop(api_key, None)
