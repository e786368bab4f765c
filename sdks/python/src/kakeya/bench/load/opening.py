"""The sessions of a level: as many as get in, and closed in any case."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kakeya.bench.load.failure import describe
from kakeya.bench.load.level import Level
from kakeya.bench.load.player import Player
from kakeya.errors import DeadlineExceeded, Exhausted

_NO_ROOM = (Exhausted, DeadlineExceeded)
"""No lane, no quota, no place in the queue; or one in a queue that takes longer than the time-out."""


@asynccontextmanager
async def opened(players: Sequence[Player], level: Level) -> AsyncIterator[list[Player]]:
    """Those who got in, in order. Nobody knocks after the first who did not: each would wait in the queue again.

    Raises:
        KakeyaError: a session cannot be opened, for another reason than that there is no room for it.
    """
    inside: list[Player] = []
    try:
        for player in players:
            try:
                await player.open()
            except _NO_ROOM as error:
                level.refusal = describe(error)
                break
            inside.append(player)
            level.num_opened = len(inside)
        yield inside
    finally:
        await _to_its_end(_close(players, level))


async def _close(players: Sequence[Player], level: Level) -> None:
    failures = await asyncio.gather(*(player.close() for player in players))
    level.why_not_closed = next(filter(None, failures), "")


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Does what must be done although a signal comes meanwhile; the cancellation goes on then."""
    working = asyncio.create_task(work)
    try:
        await asyncio.wait({working})
    finally:
        await working
