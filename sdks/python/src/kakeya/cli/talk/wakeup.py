"""Signals that no event loop handles, heeded while one sleeps."""

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def woken_by_signals(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Inside, any signal wakes the loop, so that Python calls the handler that `signal.signal` was given.

    Python calls handlers between two of its own instructions, in the main thread: that of a signal which comes just
    before the loop goes to sleep, or to another thread, would wait for whatever else wakes the loop. To be used in
    the main thread, while the loop has no handlers of its own (`loop.add_signal_handler`), which take its place.
    """
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    loop.add_reader(reader, reader.recv, 4096)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        loop.remove_reader(reader)
        reader.close()
        writer.close()
