"""Ctrl-C and its kin, as a cancel of the running task."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from kakeya_shared.process.signals import heed

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def cancelled_by_signals() -> Iterator[None]:
    """Inside, the first of SIGINT, SIGTERM and SIGHUP cancels this task; later ones do not disturb its cleanup.

    Those that are ignored, SIGHUP under nohup above all, are ignored on.
    """
    loop = asyncio.get_running_loop()
    pending = [asyncio.current_task()]

    def cancel() -> None:
        if pending and (task := pending.pop()):
            task.cancel()

    heeded = heed(_SIGNALS, cancel)
    try:
        yield
    finally:
        for number in heeded:
            loop.remove_signal_handler(number)
