"""The tokens of several answers of one worker by one stream, and by that what their clients have taken."""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import grpc
import structlog

from kakeya_router.contract import generates
from kakeya_router.contract.generates import Done, Token
from kakeya_router.contract.token_detail import TokenDetail
from kakeya_router.workers import worker_errors
from kakeya_router.workers.worker_errors import WorkerUnreachable
from kakeya_shared.process.bulletin import cancelled
from kakeya_stubs.worker.v1 import verifier_pb2 as pb

_log = structlog.get_logger()

# Of an acknowledgement: a quarter of the 64 tokens at which a row pauses, which never waits for one that is on its way.
BATCH_TOKENS = 16
BATCH_SECONDS = 0.05
# Where it does not open at once, the answer that wants it comes by its own call.
_OPEN_SECONDS = 1.0
# From the end of an answer to its last tokens, which come by another way.
_LAST_TOKENS_SECONDS = 5.0


class StreamedAnswer:
    """One Generate, whose tokens come by a stream, and whose end its call tells.

    Args:
        number: of it in the stream.
        num_before: tokens that were produced before, elsewhere.
        journaled_length: what the worker need not remember.
        tell: that more of it was passed on; now, if it is a batch.

    Attributes:
        num_passed_on, num_told: tokens that its consumer has taken, and how many of them the worker knows of.
    """

    def __init__(
        self,
        number: int,
        num_before: int,
        journaled_length: Callable[[], int],
        tell: Callable[["StreamedAnswer"], None],
    ) -> None:
        self.number = number
        self.num_passed_on = self.num_told = self._num_heard = num_before
        self._journaled_length = journaled_length
        self._tell = tell
        self._tokens: deque[Token] = deque()
        self._done: Done | None = None
        self._error: BaseException | None = None
        self._waiting: asyncio.Future[None] | None = None

    def hear(self, heard: Token | Done) -> None:
        """From the worker, by whichever way."""
        if isinstance(heard, Done):
            self._done = heard
        else:
            self._tokens.append(heard)
            self._num_heard += 1
        self._wake()

    def fail(self, error: BaseException) -> None:
        """Nothing more comes."""
        self._error = self._error or error
        self._wake()

    async def events(self) -> AsyncGenerator[Token | Done, None]:
        """Tokens, then `done`. Raises what it failed with, once all that came before is taken; at once where its call
        was cancelled, since another router may have the session.
        """
        while True:
            while self._tokens and not isinstance(self._error, asyncio.CancelledError):
                yield self._tokens.popleft()
                self.num_passed_on += 1
                self._tell(self)
            if self._done is not None and not self._tokens and self._num_heard >= self._done.generated_token_count:
                yield self._done
                return
            if self._error is not None:
                raise self._error
            await self._anything(_LAST_TOKENS_SECONDS if self._done is not None else None)

    async def hear_call(self, call: Any) -> None:
        """Listens to its call until that has ended."""
        try:
            async for response in call:
                self.hear(generates.from_worker(response))
        except Exception as error:  # whatever it is, the consumer raises it
            self.fail(error)
        except asyncio.CancelledError as error:  # the call was
            self.fail(error)
            raise
        if self._done is None:
            self.fail(worker_errors.WorkerFault("the worker's stream ended without `done`"))

    def told(self) -> pb.AcknowledgedAnswer:
        """What the worker is told of it now."""
        self.num_told = self.num_passed_on
        return pb.AcknowledgedAnswer(
            answer=self.number, num_tokens=self.num_told, journaled_length=self._journaled_length()
        )

    @property
    def has_batch(self) -> bool:
        return self.num_passed_on - self.num_told >= BATCH_TOKENS

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def _anything(self, seconds: float | None) -> None:
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._waiting
        except TimeoutError:
            self.fail(WorkerUnreachable("the last tokens of an answer have not come"))


class TokenStream:
    """One call of StreamTokens.

    Attributes:
        number: by which the worker knows it.
        has_ended: nothing comes any more.
    """

    def __init__(self, call: Any) -> None:
        self.number = 0
        self.has_ended = False
        self._call = call
        self._numbers = itertools.count(1)
        self._answers: dict[int, StreamedAnswer] = {}
        self._to_tell: dict[StreamedAnswer, None] = {}
        self._any, self._batch = asyncio.Event(), asyncio.Event()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live())

    async def opened(self) -> bool:
        """Whether it stands; waits for that for a moment."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_OPEN_SECONDS):
                await asyncio.shield(self._opened)
        return bool(self.number) and not self.has_ended

    @contextmanager
    def answer(self, num_before: int, journaled_length: Callable[[], int]) -> Iterator[StreamedAnswer]:
        """An answer, as long as it comes; see there."""
        answer = StreamedAnswer(next(self._numbers), num_before, journaled_length, self._passed_on)
        self._answers[answer.number] = answer
        try:
            yield answer
        finally:
            del self._answers[answer.number]
            self._to_tell.pop(answer, None)

    async def aclose(self) -> None:
        self._call.cancel()
        await cancelled(self._life)

    def _passed_on(self, answer: StreamedAnswer) -> None:
        self._to_tell[answer] = None
        self._any.set()
        if answer.has_batch:
            self._batch.set()

    async def _live(self) -> None:
        telling = asyncio.create_task(self._tell())
        error: BaseException = WorkerUnreachable("the stream of tokens has ended")
        try:
            await self._call.write(pb.StreamTokensRequest())
            async for response in self._call:
                self._hear(response)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError) as broken:
            _log.debug("a stream of tokens has ended", error=repr(broken))
        finally:
            self.has_ended = True
            if not self._opened.done():
                self._opened.set_result(None)
            for answer in self._answers.values():
                answer.fail(error)
            await cancelled(telling)

    def _hear(self, response: pb.StreamTokensResponse) -> None:
        if response.stream:
            self.number = response.stream
            self._opened.set_result(None)
        details, answers = response.details, self._answers
        for place, (number, token_id) in enumerate(zip(response.answers, response.token_ids, strict=True)):
            if (answer := answers.get(number)) is not None:
                detail = TokenDetail.of(details[place]) if place in details else None
                answer.hear(Token(token_id, detail))

    async def _tell(self) -> None:
        while True:
            await self._any.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(BATCH_SECONDS):
                    await self._batch.wait()
            self._any.clear()
            self._batch.clear()
            told = [answer.told() for answer in self._to_tell]
            self._to_tell.clear()
            # What ends the call is heard by who reads it.
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await self._call.write(pb.StreamTokensRequest(acknowledged=told))
