"""Lets calls in until the process drains, not too many at once, and knows when the last one has ended."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kakeya_router.access import callers
from kakeya_router.contract import refusals
from kakeya_shared.errors.tree import TooManyCalls
from kakeya_shared.rpc import rpc_boundary

# Most calls end sooner; a client that keeps to it comes back in a trickle.
_RETRY_SECONDS = 1.0
# For calls that are told to go elsewhere, to say so.
_LEAVE_SECONDS = 1.0


class CallGate:
    """Counts the calls inside: there are not too many at once, and a router that drains waits for the last one.

    `RuntimeService` holds each of its calls here; one that waits inside, say for a lane, counts as well. Counts are
    kept by tenant, so that one of them cannot use up all.

    Args:
        max_calls: that are inside at once; 0: no limit.
        max_calls_per_tenant: of one tenant; callers without one, where there are no keys, have no limit of their own.
    """

    def __init__(self, *, max_calls: int = 0, max_calls_per_tenant: int = 0) -> None:
        self._max_calls = max_calls
        self._max_calls_per_tenant = max_calls_per_tenant
        self._num_inside: Counter[str] = Counter()  # by tenant; no zeros
        self._closed = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    @contextmanager
    def inside(self, *, frees: bool = False) -> Iterator[None]:
        """Holds a call. Raises Draining once the gate is closed, TooManyCalls.

        Args:
            frees: the call gives something back, so no limit keeps it out.
        """
        tenant = callers.current().tenant
        if self._closed:
            raise refusals.draining()
        if not frees:
            self._check_limits(tenant)
        self._num_inside[tenant] += 1
        self._empty.clear()
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        try:
            yield
        finally:
            if task is not None:
                self._tasks.discard(task)
            self._num_inside[tenant] -= 1
            if not self._num_inside[tenant]:
                del self._num_inside[tenant]
            if not self._num_inside:
                self._empty.set()

    async def close(self, grace_seconds: float) -> None:
        """Lets nobody in any more and waits for those inside, at most `grace_seconds`; then they are told to go."""
        self._closed = True
        if await self._is_left_within(grace_seconds):
            return
        for task in self._tasks:
            rpc_boundary.cancel(task, refusals.draining())
        await self._is_left_within(_LEAVE_SECONDS)  # gRPC cancels what is left

    async def _is_left_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), seconds)
        return self._empty.is_set()

    def _check_limits(self, tenant: str) -> None:
        if 0 < self._max_calls <= self._num_inside.total():
            raise _too_many("of this router", self._max_calls)
        if tenant and 0 < self._max_calls_per_tenant <= self._num_inside[tenant]:
            raise _too_many(f"of tenant {tenant} at this router", self._max_calls_per_tenant)


def _too_many(whose: str, limit: int) -> TooManyCalls:
    message = f"too many calls at once: the limit {whose} is {limit}"
    return TooManyCalls(message, retry_after_seconds=_RETRY_SECONDS, metadata={"limit": str(limit)})
