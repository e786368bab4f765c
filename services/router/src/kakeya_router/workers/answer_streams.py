"""The answers of one worker by one call, those of a step in one message: beside a call for each it costs a fraction."""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
import structlog

from kakeya_router.contract import generates
from kakeya_router.contract.generates import Done, Token
from kakeya_router.contract.token_detail import TokenDetail
from kakeya_router.workers import worker_errors
from kakeya_router.workers.answers import BATCH_SECONDS, BATCH_TOKENS
from kakeya_router.workers.worker_errors import WorkerUnreachable
from kakeya_shared.process.bulletin import cancelled
from kakeya_shared.rpc import tracing
from kakeya_stubs.worker.v1 import verifier_pb2 as pb

_log = structlog.get_logger()

# A stream without answers has no messages; opening one costs as much as a call.
_LINGER_SECONDS = 60.0
_WRITTEN_SECONDS = 1.0  # a worker that takes in nothing is given up soon
# A message that is too long for the worker ends the stream, and with it the answers of others; and all wait behind it.
_LONGEST_BYTES = 1 << 16


class StreamedAnswer:
    """One Generate that comes by a stream.

    Args:
        number: of it in the stream.
        num_before: tokens that were produced before, elsewhere.
        journaled_length: what the worker need not remember.
        tell: that more of it was passed on.

    Attributes:
        has_ended: the worker has said its last word of it.
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
        self.has_ended = False
        self.num_passed_on = self.num_told = self._num_heard = num_before
        self._journaled_length = journaled_length
        self._tell = tell
        self._tokens: deque[Token] = deque()
        self._done: Done | None = None
        self._error: BaseException | None = None
        self._waiting: asyncio.Future[None] | None = None

    def hear(self, token: Token) -> None:
        self._tokens.append(token)
        self._num_heard += 1
        self._wake()

    def end(self, ended: pb.EndedAnswer) -> None:
        """All its tokens have been heard."""
        self.has_ended = True
        if not ended.HasField("done"):
            return self.fail(worker_errors.of_status(ended.failed))
        done = generates.done_from_worker(ended.done)
        if done.generated_token_count != self._num_heard:
            return self.fail(WorkerUnreachable("an answer has not come with all of its tokens"))
        self._done = done
        return self._wake()

    def fail(self, error: BaseException) -> None:
        """Nothing more comes."""
        self._error = self._error or error
        self._wake()

    def cancel(self) -> None:
        """Its consumer is raised CancelledError, as from a call."""
        self.fail(asyncio.CancelledError())

    async def events(self) -> AsyncGenerator[Token | Done, None]:
        """Tokens, then `done`. Raises what it failed with, once all that came before is taken; at once where it was
        cancelled, since another router may have the session.
        """
        while True:
            while self._tokens and not isinstance(self._error, asyncio.CancelledError):
                yield self._tokens.popleft()
                self.num_passed_on += 1
                self._tell(self)
            if self._error is not None:
                raise self._error
            if self._done is not None:
                yield self._done
                return
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting

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


class AnswerStream:
    """One call of StreamAnswers.

    Attributes:
        has_ended: nothing comes any more.
        is_written: all that was to be said has been, or nothing can be.
    """

    def __init__(self, call: Any) -> None:
        self.has_ended = False
        self._call = call
        self._numbers = itertools.count(1)
        self._answers: dict[int, StreamedAnswer] = {}
        self._to_begin: list[pb.BegunAnswer] = []
        self._to_tell: dict[StreamedAnswer, None] = {}
        self._to_cancel: list[int] = []
        self._to_write = asyncio.Event()
        self.is_written = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._life = asyncio.create_task(self._live())

    @contextmanager
    def answer(
        self,
        request: pb.GenerateRequest,
        metadata: tracing.Metadata,
        timeout: float | None,
        journaled_length: Callable[[], int],
    ) -> Iterator[StreamedAnswer]:
        """An answer, which is begun; left before its end, it is cancelled. After `timeout` seconds it has failed."""
        answer = StreamedAnswer(next(self._numbers), len(request.previous_token_ids), journaled_length, self._passed_on)
        self._answers[answer.number] = answer
        begun = pb.BegunAnswer(answer=answer.number, request=request, metadata=dict(metadata))
        self._to_begin.append(begun)
        self._has_to_write()
        timer = None
        if timeout is not None:
            timer = asyncio.get_running_loop().call_later(timeout, answer.fail, worker_errors.deadline_exceeded())
        try:
            yield answer
        finally:
            if timer is not None:
                timer.cancel()
            del self._answers[answer.number]
            self._to_tell.pop(answer, None)
            if begun in self._to_begin:  # the worker will never hear of it
                self._to_begin.remove(begun)
            elif not answer.has_ended and not self.has_ended:
                self._to_cancel.append(answer.number)
                self._has_to_write()

    async def aclose(self) -> None:
        self._call.cancel()
        await cancelled(self._life)

    def _passed_on(self, answer: StreamedAnswer) -> None:
        self._to_tell[answer] = None
        if answer.has_batch:
            self._has_to_write()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(BATCH_SECONDS, self._is_due)

    def _is_due(self) -> None:
        self._timer = None
        if self._to_tell:  # most answers of a few tokens have ended by now
            self._has_to_write()

    def _has_to_write(self) -> None:
        self.is_written.clear()
        self._to_write.set()

    async def _live(self) -> None:
        writing = asyncio.create_task(self._write())
        told: grpc.aio.AioRpcError | None = None
        try:
            async for response in self._call:
                self._hear(response)
        except grpc.aio.AioRpcError as broken:
            told = broken
        except (asyncio.InvalidStateError, asyncio.CancelledError):
            pass  # closed here
        finally:
            _log.debug("a stream of answers has ended", error=repr(told))
            self.has_ended = True
            self.is_written.set()
            for answer in self._answers.values():
                answer.fail(worker_errors.of_standing(told))  # each its own: it is raised in several tasks
            if self._timer is not None:
                self._timer.cancel()
            await cancelled(writing)

    def _hear(self, response: pb.StreamAnswersResponse) -> None:
        details, answers = response.details, self._answers
        for place, (number, token_id) in enumerate(zip(response.answers, response.token_ids, strict=True)):
            if (answer := answers.get(number)) is not None:
                answer.hear(Token(token_id, TokenDetail.of(details[place]) if place in details else None))
        for ended in response.ended:
            if (answer := answers.get(ended.answer)) is not None:
                answer.end(ended)

    async def _write(self) -> None:
        # What ends the call is heard by who reads it.
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while True:
                await self._to_write.wait()
                self._to_write.clear()
                for request in self._requests():
                    await self._call.write(request)
                if not self._to_write.is_set():
                    self.is_written.set()

    def _requests(self) -> Iterator[pb.StreamAnswersRequest]:
        """All that is to be written. No two answers begin in one message: it could be longer than a message may be."""
        to_begin, self._to_begin = self._to_begin, []
        for begun in to_begin:
            yield pb.StreamAnswersRequest(begun=begun)
        told, to_cancel = [answer.told() for answer in self._to_tell], self._to_cancel
        self._to_tell, self._to_cancel = {}, []
        if told or to_cancel:
            yield pb.StreamAnswersRequest(acknowledged=told, cancelled=to_cancel)


@dataclass(eq=False)
class AnswerStreams:
    """Of one worker: a stream stands while it is of use, and a while longer.

    Attributes:
        is_served: the worker names the feature.
    """

    _open: Callable[[], Any]
    is_served: bool
    _stream: AnswerStream | None = field(default=None, init=False)
    _num_running: int = field(default=0, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _closing: set["asyncio.Task[None]"] = field(default_factory=set, init=False)

    @contextmanager
    def running(self, request: pb.GenerateRequest) -> Iterator[AnswerStream | None]:
        """One more answer; inside, the stream by which it comes. None: by its own call, as to a long request."""
        if not self.is_served or request.ByteSize() > _LONGEST_BYTES:
            yield None
            return
        if self._stream is None or self._stream.has_ended:
            self._stream = AnswerStream(self._open())
        self._num_running += 1
        try:
            yield self._stream
        finally:
            self._num_running -= 1
            if not self._num_running:
                self._close_later()

    async def written(self) -> None:
        """Once the worker has been told which answers begin and which are left, or after a second."""
        if self._stream is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stream.is_written.wait(), _WRITTEN_SECONDS)

    async def aclose(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._stream is not None:
            await self._stream.aclose()
        await asyncio.gather(*self._closing)

    def _close_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._close)

    def _close(self) -> None:
        """It is opened anew when it is of use again."""
        if self._stream is not None and not self._num_running:
            stream, self._stream = self._stream, None
            closing = asyncio.create_task(stream.aclose())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
