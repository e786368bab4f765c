"""The time of a test's event loop, which passes when the test says so."""

import asyncio


class LoopClock:
    """The clock of a loop from now on: as fast as its own, and set forward by the test.

    All that waits in this loop for a time goes by it: time-outs may be long, so that no busy machine reaches them, and
    lapse at once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._own = loop.time
        self._ahead_seconds = 0.0
        loop.time = self  # type: ignore[method-assign]

    def __call__(self) -> float:
        return self._own() + self._ahead_seconds

    def skip(self, seconds: float) -> None:
        self._ahead_seconds += seconds

    async def elapse(self, seconds: float) -> None:
        """Skips them once what was sent has arrived: sockets of this process have it as soon as it is written."""
        for _ in range(20):
            await asyncio.sleep(0)
        self.skip(seconds)
