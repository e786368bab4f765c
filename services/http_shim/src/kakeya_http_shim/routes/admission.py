"""How many requests are worked on at once, and what happens to the others."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from kakeya_http_shim.metrics import Metrics
from kakeya_http_shim.problems import ApiError, too_many

_LONGEST_RETRY_SECONDS = 60.0
_NEWEST_SHARE = 0.1
"""Of the latest request in the mean time that requests take."""


class Admission:
    """A bounded number of places, given in the order of arrival.

    A place that becomes free is handed to the first who waits, so nobody who comes later can take it.

    Args:
        policy: what happens when all places are taken: "queue" lets a request wait, "reject" refuses it.
        max_in_flight: places.
        queue_length: requests that may wait.
        queue_max_wait_seconds: how long each may wait; 0: for ever.
    """

    def __init__(
        self,
        policy: Literal["queue", "reject"],
        max_in_flight: int,
        queue_length: int,
        queue_max_wait_seconds: float,
        metrics: Metrics,
    ) -> None:
        self._policy = policy
        self._max_in_flight = max_in_flight
        self._queue_length = queue_length
        self._queue_max_wait_seconds = queue_max_wait_seconds
        self._metrics = metrics
        self._num_in_flight = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._mean_seconds = 1.0

    @property
    def num_in_flight(self) -> int:
        """Places that are taken."""
        return self._num_in_flight

    @property
    def num_waiting(self) -> int:
        """Requests that wait for a place."""
        return len(self._waiters)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Holds a place inside. Raises ApiError (429) where there is none, or none in time."""
        await self._take()
        began = time.monotonic()
        try:
            yield
        finally:
            self._mean_seconds += _NEWEST_SHARE * (time.monotonic() - began - self._mean_seconds)
            self._leave()

    async def _take(self) -> None:
        if self._num_in_flight < self._max_in_flight:
            self._num_in_flight += 1
            self._show()
        elif self._policy == "reject":
            raise self._rejection("busy", f"{self._num_in_flight} requests are under way, no more at once")
        elif len(self._waiters) >= self._queue_length:
            raise self._rejection("queue_full", f"{len(self._waiters)} requests are waiting already")
        else:
            await self._wait()

    async def _wait(self) -> None:
        handed_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(handed_over)
        self._show()
        try:
            await asyncio.wait((handed_over,), timeout=self._queue_max_wait_seconds or None)
        except asyncio.CancelledError:
            self._give_up(handed_over)
            raise
        if not handed_over.done():
            self._give_up(handed_over)
            waited = f"{self._queue_max_wait_seconds:g} s"
            raise self._rejection("queue_timeout", f"the request waited for {waited}, and others are still before it")

    def _give_up(self, handed_over: "asyncio.Future[None]") -> None:
        if handed_over.done():  # the place came in the same moment: on with it
            self._leave()
        else:
            self._waiters.remove(handed_over)
            self._show()

    def _leave(self) -> None:
        if self._waiters:
            self._waiters.popleft().set_result(None)
        else:
            self._num_in_flight -= 1
        self._show()

    def _show(self) -> None:
        self._metrics.in_flight_requests.set(self._num_in_flight)
        self._metrics.waiting_requests.set(len(self._waiters))

    def _rejection(self, reason: str, message: str) -> ApiError:
        self._metrics.rejected_requests.labels(reason).inc()
        turn_seconds = self._mean_seconds * (len(self._waiters) + 1) / self._max_in_flight
        return too_many(message, retry_after_seconds=min(turn_seconds, _LONGEST_RETRY_SECONDS))
