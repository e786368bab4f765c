"""Changes that must get through although Redis is away for a while."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kakeya_shared.errors import StoreUnavailable

_NUM_ATTEMPTS = 120
_PAUSE_SECONDS = 0.5


async def persist(change: Callable[[], Awaitable[Any]]) -> None:
    """Repeats `change` until Redis takes it.

    Gives up after a minute: leases have lapsed before, and other routers and the reaper do the rest once Redis
    is back.
    """
    for _ in range(_NUM_ATTEMPTS):
        try:
            await change()
        except StoreUnavailable:
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return
