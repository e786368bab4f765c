"""A clock that goes on by what a test says alone, so that no test of a bench waits, or depends on what it waits for."""

import asyncio
import threading

import grpc
import pytest

from kakeya_bench.conversation import clock
from tests.unit.sdk.scripted_runtime import Fault


class OwnClock:
    """In the place of the benches' clock: who sleeps is there at once, and a call takes as long as a test says.

    Attributes:
        tick_seconds: how much later it is after each look at it.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.tick_seconds = 0.0
        self._seconds = 0.0
        self._lock = threading.Lock()
        patch.setattr(clock, "now", self.now)
        patch.setattr(clock, "sleep", self.sleep)

    def now(self) -> float:
        """Seconds since it was made."""
        return self.go_on(self.tick_seconds)

    async def sleep(self, seconds: float) -> None:
        """Those who fall asleep at the same time wake up in that order, each at its own."""
        until = self.go_on(0.0) + seconds
        await asyncio.sleep(0)
        with self._lock:
            self._seconds = max(self._seconds, until)

    def go_on(self, seconds: float) -> float:
        """Returns when it is then."""
        with self._lock:
            self._seconds += seconds
            return self._seconds

    def takes(self, seconds: float) -> Fault:
        """Not a failure: a call that takes so long."""

        def fault(context: grpc.ServicerContext) -> None:
            self.go_on(seconds)

        return fault
