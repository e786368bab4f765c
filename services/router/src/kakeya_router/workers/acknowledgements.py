"""Tells a worker how many tokens of a running Generate its client has taken, so that it pauses when that stops."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import grpc
import structlog

_log = structlog.get_logger()

# A quarter of the 64 tokens at which a row pauses: it never waits for a call that is on its way.
_BATCH_TOKENS = 16
_BATCH_SECONDS = 0.05
# These say that no acknowledgement of this stream will ever be heard: an older worker, or a lane that is gone.
_FINAL = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION)


class Acknowledgements:
    """Of one stream. One call at a time, each with the latest number; what fails is sent again with the next.

    Args:
        send: tells the worker how many of the Generate's tokens have been passed on; raises AioRpcError.
        num_before: how many were before the stream began.
    """

    def __init__(self, send: Callable[[int], Awaitable[object]], num_before: int = 0) -> None:
        self._send = send
        self._num_passed_on = num_before
        self._num_sent = num_before
        self._any = asyncio.Event()
        self._batch = asyncio.Event()

    @asynccontextmanager
    async def sending(self) -> AsyncIterator["Acknowledgements"]:
        """Sends in the background while inside."""
        task = asyncio.create_task(self._run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait([task])
            _report(task)

    def pass_on(self) -> None:
        """Counts one more token that the consumer has taken."""
        self._num_passed_on += 1
        self._any.set()
        if self._num_passed_on - self._num_sent >= _BATCH_TOKENS:
            self._batch.set()

    async def _run(self) -> None:
        while True:
            await self._any.wait()
            # Not wait_for: up to Python 3.11 it swallows a cancellation that comes together with the event.
            with suppress(TimeoutError):
                async with asyncio.timeout(_BATCH_SECONDS):
                    await self._batch.wait()
            try:
                await self._acknowledge()
            except grpc.aio.AioRpcError as error:
                _log.debug("acknowledgement failed", status=error.code().name)
                if error.code() in _FINAL:
                    return
                await asyncio.sleep(_BATCH_SECONDS)

    async def _acknowledge(self) -> None:
        num_tokens = self._num_sent = self._num_passed_on
        self._batch.clear()
        await self._send(num_tokens)
        if self._num_passed_on == num_tokens:
            self._any.clear()


def _report(ended: "asyncio.Task[None]") -> None:
    """Logs what ended the sending when nobody meant it to; the stream itself does not suffer from it."""
    error = None if ended.cancelled() else ended.exception()
    if error is not None:
        _log.error("acknowledgements have failed", exc_info=error)
