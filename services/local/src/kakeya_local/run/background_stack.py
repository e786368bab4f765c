"""A stack beside a talk: in a thread of its own, as the main thread waits for what a person types."""

import asyncio
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

from kakeya.cli.flags.connection import Connection
from kakeya_local.errors import StackError
from kakeya_local.settings import UpSettings
from kakeya_local.stack.stack import Report, running

_POLL_SECONDS: Final = 0.2


class BackgroundStack:
    """Starts at `start` and ends at `stop`, which is to be called whatever happened meanwhile.

    Args:
        report: gets a line at each step of the start and when a process was started again, in the other thread.
    """

    def __init__(self, settings: UpSettings, report: Report) -> None:
        self._settings = settings
        self._report = report
        self._told: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._ready: Future[Connection] = Future()
        # Should this process end without a stop, nothing is waited for; its processes end with it, on Linux.
        self._thread = threading.Thread(target=self._run, name="stack", daemon=True)
        self.failure: StackError | None = None

    def start(self) -> None:
        """Returns at once."""
        self._thread.start()

    def wait_ready(self) -> Connection:
        """How its router is reached. Any signal's handler is called meanwhile. Raises StackError."""
        return self._ready.result()

    def stop(self) -> None:
        """Returns when no process is left, and no file."""
        while self._thread.is_alive():
            if self._told is not None:
                loop, stopping = self._told
                with suppress(RuntimeError):  # the loop is closed: it has ended by itself
                    loop.call_soon_threadsafe(stopping.set)
            self._thread.join(_POLL_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except StackError as error:
            self.failure = error
            if not self._ready.done():
                self._ready.set_exception(error)
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
            raise

    async def _serve(self) -> None:
        stopping = asyncio.Event()
        self._told = asyncio.get_running_loop(), stopping
        stack = asyncio.create_task(self._held())
        told = asyncio.create_task(stopping.wait())
        await asyncio.wait((stack, told), return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        stack.cancel()
        with suppress(asyncio.CancelledError):
            await stack

    async def _held(self) -> None:
        async with running(self._settings, self._report) as stack:
            self._ready.set_result(stack.plan.connection)
            await stack.watch()
