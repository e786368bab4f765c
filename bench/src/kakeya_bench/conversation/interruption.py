"""Ctrl-C and SIGTERM as something that a bench waits for."""

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from kakeya.cli.talk.wakeup import woken_by_signals

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Whether the bench was told to stop.

    Attributes:
        signal: which signal did; None while none did.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._working: asyncio.Task[None] | None = None

    @property
    def exit_status(self) -> int | None:
        """As shells say it; None while there is none."""
        return None if self.signal is None else 128 + self.signal

    async def cuts_short(self, work: Coroutine[Any, Any, None]) -> bool:
        """Does the work, or cancels it when a signal comes; whether one did.

        What the work raises passes, also what it raises on its way out.
        """
        self._working = asyncio.create_task(work)
        if self.signal is not None:
            self._working.cancel()
        try:
            await asyncio.wait({self._working})
        finally:
            self._working.cancel()  # where who waits is cancelled
        if self.signal is None or not self._working.cancelled():
            self._working.result()
        return self.signal is not None

    def come(self, number: signal.Signals) -> None:
        """What the first signal does; the second one does what it always does."""
        self.signal = number
        if self._working is not None:
            self._working.cancel()


@contextmanager
def heeded() -> Iterator[Interruption]:
    """Signals are heeded in this context: the first one is told, and those after it end the process as ever.

    Those that are ignored, as Ctrl-C is in a job that a script put in the background, are ignored on.
    """
    loop, interruption = asyncio.get_running_loop(), Interruption()
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    before = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}

    def restore() -> None:
        for number, handler in before.items():
            if loop.remove_signal_handler(number):  # which leaves Python's default in its place
                signal.signal(number, handler)

    with ExitStack() as awake:

        def first(number: signal.Signals) -> None:
            restore()
            awake.enter_context(woken_by_signals(loop))
            interruption.come(number)

        for number in before:
            loop.add_signal_handler(number, first, number)
        try:
            yield interruption
        finally:
            restore()
