"""Whether signals reach an event loop that sleeps."""

import asyncio
import signal
import threading
import time

_SLEEP_SECONDS = 20.0


async def wakes_for(number: signal.Signals) -> bool:
    """Whether the handler of a signal is called at once when the system gives that to another thread than the main
    one, which goes on sleeping: as with a signal that comes just before it begins to."""
    heard = asyncio.Event()
    before = signal.signal(number, lambda number, frame: heard.set())
    try:
        threading.Timer(0.05, lambda: signal.pthread_kill(threading.get_ident(), number)).start()
        start = time.monotonic()
        async with asyncio.timeout(_SLEEP_SECONDS):
            await heard.wait()
        return time.monotonic() - start < _SLEEP_SECONDS - 1  # the end of its sleep wakes it, too
    finally:
        signal.signal(number, before)
