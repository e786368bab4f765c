"""Signals that end a program, told to its event loop."""

import asyncio
import signal
from collections.abc import Callable, Iterable


def heed(numbers: Iterable[signal.Signals], call: Callable[[], object]) -> list[signal.Signals]:
    """Has the running loop call `call` at each of these signals, but for those that are ignored.

    What the program was started to ignore stays ignored: SIGHUP under nohup, SIGINT in a job that a script put
    in the background.

    Returns:
        Those that are heeded, for `asyncio.AbstractEventLoop.remove_signal_handler`.
    """
    loop = asyncio.get_running_loop()
    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heeded:
        loop.add_signal_handler(number, call)
    return heeded
