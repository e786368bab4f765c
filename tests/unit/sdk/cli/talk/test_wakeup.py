import asyncio
import signal
import socket

from kakeya.cli.talk.wakeup import woken_by_signals
from tests.unit.sdk.sleeping import wakes_for


async def test_a_loop_that_sleeps_calls_the_handler_of_a_signal() -> None:
    with woken_by_signals(asyncio.get_running_loop()):
        assert await wakes_for(signal.SIGUSR1)


async def test_what_woke_the_loop_before_does_afterwards() -> None:
    with socket.socket() as other:
        other.setblocking(False)
        before = signal.set_wakeup_fd(other.fileno(), warn_on_full_buffer=False)
        with woken_by_signals(asyncio.get_running_loop()):
            pass
        assert signal.set_wakeup_fd(before) == other.fileno()
