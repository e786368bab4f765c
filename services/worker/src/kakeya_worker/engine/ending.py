"""When the engine ends: once it was asked to, as soon as nothing is left to wait for, or when the grace is over."""

import math
import time
from collections.abc import Collection

from kakeya_shared.errors.tree import Draining

_SHARE_OF_WHAT_RUNS = 0.5  # of the grace; the rest is for routers to take over the lanes of what was cut off


class Ending:
    """Belongs to the engine's thread."""

    def __init__(self) -> None:
        self._ends_at: float | None = None  # perf_counter seconds, once it is asked to end
        self._hands_over_at = math.inf  # likewise
        self._is_abandoned = False  # nobody takes its idle sessions away
        self._ends_empty = False  # not before all its sessions were taken away

    def begin(self, grace_seconds: float, *, until_empty: bool) -> None:
        """See `Engine.shut_down`."""
        now = time.perf_counter()
        self._ends_at, self._hands_over_at = now + grace_seconds, now + _SHARE_OF_WHAT_RUNS * grace_seconds
        self._ends_empty = until_empty and not self._is_abandoned

    def abandon_idle(self) -> None:
        """See `Engine.abandon_idle`."""
        self._ends_empty = False
        self._is_abandoned = True  # it may come before the end was asked for

    def is_now(self) -> None:
        """The thread has died: there is no grace."""
        self._ends_at = time.perf_counter()

    @property
    def has_begun(self) -> bool:
        return self._ends_at is not None

    def refuse_if_begun(self) -> None:
        """Raises Draining."""
        if self._ends_at is not None:
            raise shutting_down()

    @property
    def hands_over(self) -> bool:
        """Whether what still runs is to end, so that routers can take its sessions away before the grace is over."""
        return self._ends_empty and self._hands_over_at <= time.perf_counter()

    @property
    def seconds_left(self) -> float | None:
        """Until something of it happens by itself; None: nobody has asked for the end."""
        if self._ends_at is None:
            return None
        waits_for_hand_over = self._ends_empty and not self.hands_over
        return max(0.0, (self._hands_over_at if waits_for_hand_over else self._ends_at) - time.perf_counter())

    def is_over(self, sessions: Collection[object], operations: Collection[object]) -> bool:
        """Once it has begun: whether it is time, with these sessions and operations left."""
        waits_for = sessions if self._ends_empty else operations
        return not waits_for or (self._ends_at is not None and self._ends_at <= time.perf_counter())


def shutting_down() -> Draining:
    return Draining("the worker is shutting down")
