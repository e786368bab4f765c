"""Changes that must get through although Redis is away for a while."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from kakeya_shared.errors.tree import StoreUnavailable

_GIVE_UP_SECONDS = 60.0
_PAUSE_SECONDS = 0.5


async def persist(change: Callable[[], Awaitable[Any]]) -> None:
    """Repeats `change` until Redis takes it.

    Gives up after a minute: leases have lapsed before, and other routers and the reaper do the rest once Redis
    is back.
    """
    until = time.monotonic() + _GIVE_UP_SECONDS
    while time.monotonic() < until:
        try:
            await change()
        except StoreUnavailable:
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return
