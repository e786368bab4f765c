"""The right of a worker to run sessions, by its own clock: routers that it cannot hear may have given it to others."""

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from kakeya_shared.errors.tree import NoWorker, StaleEpoch, StoreUnavailable

# One that goes on while the machine sleeps, as Redis' clock does: on Linux that of the boot; on macOS the monotonic
# one, which is another there than Python's.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
seconds_since_boot = partial(time.clock_gettime, _CLOCK)


class Lease:
    """Of the incarnation that has joined. Routers count from when they are asked, and the worker from when it asks: its
    lease is over first.

    Args:
        clock: in seconds.

    Attributes:
        ends_at: by the clock; before that calls may be answered.
    """

    def __init__(self, clock: Callable[[], float] = seconds_since_boot) -> None:
        self.clock = clock
        self._incarnation = ""
        self._seconds, self.ends_at = 0.0, -math.inf
        self._answered = asyncio.Event()
        self._answered.set()

    @property
    def is_held(self) -> bool:
        return self.clock() < self.ends_at

    @contextmanager
    def asked_for(self) -> Iterator[float]:
        """While a router is asked, from the time on that comes: others may know its answer before this worker does. One
        whose store is away says no, and lets no lease age.
        """
        asked_at, was_held = self.clock(), self.is_held
        self._answered.clear()
        try:
            yield asked_at
        except StoreUnavailable:
            if was_held:
                self.renew(asked_at)
            raise
        finally:
            self._answered.set()

    def grant(self, incarnation: str, asked_at: float, seconds: float) -> None:
        """Args:
        asked_at: by the clock.
        seconds: for how long at a time; 0: the router does not say, and it is for good.
        """
        self._incarnation, self._seconds, self.ends_at = incarnation, seconds or math.inf, -math.inf
        self.renew(asked_at)

    def renew(self, asked_at: float) -> None:
        self.ends_at = max(self.ends_at, asked_at + self._seconds)

    def lose(self) -> None:
        """A router has given this worker up."""
        self.ends_at = -math.inf

    async def check(self) -> None:
        """Whether calls may be answered.

        Raises:
            NoWorker: no router has let this worker in yet.
            StaleEpoch: its lease has lapsed.
        """
        if not self.is_held:
            await self._answered.wait()
        if not self._incarnation:
            raise NoWorker("the worker has not joined yet", retry_after_seconds=1.0)
        if not self.is_held:
            raise StaleEpoch("the worker's own lease has lapsed: its sessions may have lanes elsewhere")

    def check_incarnation(self, meant: str) -> None:
        """Raises StaleEpoch: another one is meant, which has listened here before, say.

        Args:
            meant: empty: whichever it is.
        """
        if meant not in ("", self._incarnation):
            raise StaleEpoch("the lane was reserved at another incarnation than the one that listens here")
