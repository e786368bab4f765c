"""Answers that come by a call of their own, from workers that do not name `answer-stream` (see `answer_streams`), and
how these are told what clients have taken.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import grpc
import structlog

from kakeya_router.contract import generates
from kakeya_router.contract.generates import Done, Token
from kakeya_shared.process.bulletin import cancelled
from kakeya_stubs.worker.v1 import verifier_pb2 as pb

if TYPE_CHECKING:  # exists in the stubs' types only
    from kakeya_stubs.worker.v1.verifier_pb2_grpc import VerifierServiceAsyncStub

_log = structlog.get_logger()

# From `done` to the end of a call takes a worker milliseconds; the session is busy until then.
_END_SECONDS = 0.5
_CALL_SECONDS = 2.0
# Of an acknowledgement: a quarter of the 64 tokens at which a row pauses, which never waits for one that is on its way.
BATCH_TOKENS = 16
BATCH_SECONDS = 0.05
# These say that no acknowledgement of this stream will ever be heard: an older worker, or a lane that is gone.
_FINAL = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION)

Events = AsyncGenerator[Token | Done, None]
"""Tokens, then `done`. Who asks for the next token has passed on the one before: the worker is told, and pauses when
nobody asks. Closed, it ends the call."""


async def of_call(
    call: Any, stub: "VerifierServiceAsyncStub", request: pb.GenerateRequest, journaled_length: Callable[[], int]
) -> Events:
    """Raises AioRpcError, CancelledError: the call was.

    Args:
        request: that the call has made.
        journaled_length: what the worker need not remember.
    """
    is_done = False
    try:
        async with Acknowledgements.of(stub, request, journaled_length).sending() as acknowledgements:
            async for response in call:
                is_done = response.HasField("done")
                yield generates.from_worker(response)
                acknowledgements.pass_on()
    finally:
        await _end(call, _END_SECONDS if is_done else 0.0)


class Acknowledgements:
    """Of one stream: each batch at once, fewer after a while; one call at a time, each with the latest number. What
    fails is sent again. Between two calls there is a timer and no task: most streams of a few tokens end before the
    first.

    Args:
        send: tells the worker how many of the Generate's tokens have been passed on; raises AioRpcError.
        num_before: how many were before the stream began.
    """

    def __init__(self, send: Callable[[int], Awaitable[object]], num_before: int = 0) -> None:
        self._send = send
        self._num_passed_on = num_before
        self._num_sent = num_before
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None
        self._is_over = False

    @classmethod
    def of(
        cls, stub: "VerifierServiceAsyncStub", request: pb.GenerateRequest, journaled_length: Callable[[], int]
    ) -> "Acknowledgements":
        """Of a Generate; `journaled_length`: what the worker need not remember."""

        async def send(num_tokens: int) -> None:
            acknowledge = pb.AcknowledgeRequest(
                session_id=request.session_id,
                epoch=request.epoch,
                num_tokens=num_tokens,
                journaled_length=journaled_length(),
            )
            await stub.Acknowledge(acknowledge, timeout=_CALL_SECONDS)

        return cls(send, len(request.previous_token_ids))

    @asynccontextmanager
    async def sending(self) -> AsyncIterator["Acknowledgements"]:
        """Sends in the background while inside."""
        try:
            yield self
        finally:
            self._is_over = True
            if self._timer is not None:
                self._timer.cancel()
            if self._sending is not None:
                await cancelled(self._sending)

    def pass_on(self) -> None:
        """Counts one more token that the consumer has taken."""
        self._num_passed_on += 1
        self._look()

    def _look(self) -> None:
        num_new = self._num_passed_on - self._num_sent
        if self._is_over or self._sending is not None or not num_new:
            return
        if num_new >= BATCH_TOKENS:
            self._begin()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(BATCH_SECONDS, self._begin)

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._sending = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            while True:
                if await self._is_told():
                    break
                await asyncio.sleep(BATCH_SECONDS)
        except Exception as error:  # the stream itself does not suffer from it
            _log.error("acknowledgements have failed", exc_info=error)
            self._is_over = True
        finally:
            self._sending = None
        self._look()

    async def _is_told(self) -> bool:
        """Whether there is nothing to be said again."""
        self._num_sent = self._num_passed_on
        try:
            await self._send(self._num_sent)
        except grpc.aio.AioRpcError as error:
            _log.debug("acknowledgement failed", status=error.code().name)
            self._is_over = error.code() in _FINAL
            return self._is_over
        return True


async def _end(call: Any, grace_seconds: float) -> None:
    """Cancels a call, unless the worker ends it first: where its result is there, it would count as failed there."""
    try:
        if grace_seconds:
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_seconds):
                    await call.code()
    finally:
        call.cancel()
