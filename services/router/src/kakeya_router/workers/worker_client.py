"""Calls to the workers' VerifierService; gRPC's errors end here."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message
from opentelemetry.trace import INVALID_SPAN_CONTEXT, SpanContext

from kakeya_router.contract import lanes
from kakeya_router.contract.appends import Appended
from kakeya_router.contract.generates import Done, Token
from kakeya_router.contract.lanes import Opened, Stopped
from kakeya_router.store.session_record import LaneState, SessionRecord
from kakeya_router.store.sessions.stored_snapshots import StoredSnapshot
from kakeya_router.workers import answers, channels, open_requests, worker_errors
from kakeya_router.workers.answer_streams import AnswerStreams, StreamedAnswer
from kakeya_router.workers.probing import PROBE_SECONDS, Answers
from kakeya_shared.process.detached_tasks import is_cancelled
from kakeya_shared.rpc import tracing
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from kakeya_stubs.worker.v1.verifier_pb2_grpc import VerifierServiceStub

_SERVICE = "/kakeya.worker.v1.VerifierService/"
_AGAIN_SECONDS = 0.1


@dataclass(slots=True)
class RunningCall:
    """A call that another task may end; it then raises `asyncio.CancelledError` where it is awaited.

    Attributes:
        cancelled: nothing is called any more.
        worker_lost: this call was ended since its worker is gone.
        broken: span of the call that broke off, on which the next follows.
    """

    cancelled: bool = False
    worker_lost: bool = False
    broken: SpanContext = INVALID_SPAN_CONTEXT
    _call: grpc.aio.Call | StreamedAnswer | None = None
    _span: SpanContext = INVALID_SPAN_CONTEXT

    def started(self, call: grpc.aio.Call | StreamedAnswer, record: SessionRecord) -> None:
        tracing.annotate(worker_id=record.worker_id, epoch=record.epoch)
        self._call, self._span, self.worker_lost = call, tracing.here(), False
        if self.cancelled:
            call.cancel()

    def breaks_off(self) -> None:
        """The call that ran is over before its end."""
        self.broken = self._span

    def lose_worker(self) -> None:
        """Ends the call that runs now; there may be others."""
        if self._call is not None:
            self.worker_lost = True
            self._call.cancel()

    def cancel(self) -> None:
        self.cancelled = True
        if self._call is not None:
            self._call.cancel()


class WorkerClient:
    """One worker's channel, in plaintext without credentials; through a door to one behind tunnels.

    Every method raises WorkerError or the error of the tree that the worker raised; `timeout` is in seconds, None
    for no limit, and passing it raises DeadlineExceeded. See `see` for `streams_answers`.

    Attributes:
        is_gone: it was not among the registered workers at the last look.
        answers: whether it answers: it is asked nothing while it is silent.
        is_waited_for: behind a tunnel, as long as its lease runs.
    """

    def __init__(
        self,
        address: str,
        credentials: grpc.ChannelCredentials | None = None,
        door: Path | None = None,
        *,
        streams_answers: bool = False,
    ) -> None:
        self.credentials = credentials
        self._address = address
        self._channel = channels.to_worker(address, credentials) if door is None else channels.to_door(door)
        self._stub = VerifierServiceStub(self._channel)
        self._streams = AnswerStreams(self._stub.StreamAnswers, is_served=streams_answers)
        self._num_calls = 0
        self._asked: set[grpc.aio.Call] = set()
        self.is_waited_for = door is not None
        self.answers = Answers(lambda: self._stub.GetSlab(pb.GetSlabRequest(), timeout=PROBE_SECONDS))
        self.is_gone = self._was_there = self._is_missed = self._is_closed = False

    async def aclose(self) -> None:
        """Who still holds it finds the worker unreachable: it is closed where it is idle and its worker gone."""
        self._is_closed = True
        await self.answers.aclose()
        await self._streams.aclose()
        await self._channel.close()

    @property
    def idle(self) -> bool:
        """Whether no call runs; closing the channel would cancel it."""
        return not self._num_calls

    def see(self, *, is_there: bool, streams_answers: bool = False) -> None:
        """Told at each look at the workers. A worker that was not there before may be new: it is looked for twice.

        What is asked of one that is gone is ended, since it may hang; operations end their calls themselves.

        Args:
            streams_answers: it names that feature.
        """
        self._streams.is_served = streams_answers
        self.is_gone = not is_there and (self._was_there or self._is_missed)
        self._was_there = self._was_there or is_there
        self._is_missed = not is_there
        if self.is_gone:
            self.end_asked()

    def end_asked(self) -> None:
        """Ends what is asked of it; operations end their calls themselves."""
        for call in self._asked:
            call.cancel()

    async def open_session(self, record: SessionRecord, source: SessionRecord | None, timeout: float) -> Opened:
        """Opens a lane, empty or with the history of a source."""
        return await self._open(open_requests.of_source(record, source), timeout)

    async def restore_session(self, record: SessionRecord, names: Sequence[str], timeout: float) -> Opened:
        """Opens a lane with what snapshots hold; without names, an empty one."""
        return await self._open(open_requests.of_snapshots(record, names), timeout)

    async def _open(self, request: pb.OpenSessionRequest, timeout: float) -> Opened:
        answer: pb.OpenSessionResponse = await self._ask_again("OpenSession", request, timeout)
        return Opened(lanes.from_worker(answer.lane), answer.sink, answer.window)

    async def append(
        self, record: SessionRecord, token_ids: Sequence[int], running: RunningCall, logprobs: int | None = None
    ) -> Appended:
        """Without a time limit: the tokens are in the history, and have to be prefilled."""
        request = pb.AppendRequest(**_position(record), token_ids=token_ids, logprobs=logprobs)
        with self._calling("Append", running.broken) as metadata:
            call = self._stub.Append(request, metadata=metadata)
            running.started(call, record)
            return Appended.of(await call)

    async def generate(
        self,
        record: SessionRecord,
        request: pb.GenerateRequest,
        timeout: float | None,
        running: RunningCall,
        journaled_length: Callable[[], int],
    ) -> AsyncGenerator[Token | Done, None]:
        """Tokens, then `done`. Close the iterator (`contextlib.aclosing`) to end the call.

        Who asks for the next token has passed on the one before: the worker is told, and pauses when nobody asks.

        Args:
            journaled_length: what the worker need not remember.
        """
        with self._calling("Generate", running.broken) as metadata, self._streams.running(request) as stream:
            if stream is not None:
                with stream.answer(request, metadata, timeout, journaled_length) as answer:
                    running.started(answer, record)
                    async with aclosing(answer.events()) as events:
                        async for event in events:
                            yield event
                return
            call = self._stub.Generate(request, timeout=timeout, metadata=metadata)
            running.started(call, record)
            async with aclosing(answers.of_call(call, self._stub, request, journaled_length)) as events:
                async for event in events:
                    yield event

    async def check_grammar(self, grammar: pb.Grammar, timeout: float) -> None:
        """Raises InvalidField: it cannot be used there."""
        await self._ask("CheckGrammar", pb.CheckGrammarRequest(grammar=grammar), timeout)

    async def stop(self, record: SessionRecord, journaled_length: int, timeout: float | None) -> Stopped:
        """What is committed, and what of it was generated after `journaled_length`."""
        await self._streams.written()  # it must not come before the beginning of what it is to stop
        request = pb.StopRequest(
            **_lease(record), journaled_length=journaled_length, operation_number=record.operation_number
        )
        answer: pb.StopResponse = await self._ask_again("Stop", request, timeout)
        return Stopped(lanes.from_worker(answer.lane), tuple(answer.token_ids))

    async def rewind(self, record: SessionRecord, length: int, timeout: float) -> LaneState:
        """Takes the lane back to a length; raises BoundaryNotReachable where it has forgotten what was there."""
        request = pb.RewindRequest(**_position(record), target_length=length)
        answer: pb.RewindResponse = await self._ask("Rewind", request, timeout)
        return lanes.from_worker(answer.lane)

    async def write_snapshot(self, record: SessionRecord, start: int, prefix: str, timeout: float) -> StoredSnapshot:
        """Writes what came since `start`, under a name that begins with the prefix."""
        request = pb.WriteSnapshotRequest(**_lease(record), start=start, prefix=prefix)
        answer: pb.WriteSnapshotResponse = await self._ask("WriteSnapshot", request, timeout)
        digest = answer.history_digest if answer.HasField("history_digest") else None
        return StoredSnapshot(answer.name, start, answer.length, answer.size_bytes, digest)

    async def delete_snapshots(self, names: Collection[str], timeout: float) -> None:
        await self._ask("DeleteSnapshots", pb.DeleteSnapshotsRequest(names=names), timeout)

    async def read_lane(self, record: SessionRecord, timeout: float) -> AsyncGenerator[bytes, None]:
        """What the session's lane keeps now, in parts."""
        with self._calling("ReadLane") as metadata:
            call = self._stub.ReadLane(pb.ReadLaneRequest(**_lease(record)), timeout=timeout, metadata=metadata)
            try:
                async for part in call:
                    yield part.content
            finally:
                call.cancel()

    async def write_lane(self, record: SessionRecord, parts: AsyncIterator[bytes], timeout: float) -> LaneState:
        """Opens a lane with what another worker has sent; what goes wrong with that ends the call."""
        request = open_requests.of_another_lane(record)
        with self._calling("WriteLane") as metadata:
            call = self._stub.WriteLane(timeout=timeout, metadata=metadata)
            try:
                with suppress(asyncio.InvalidStateError):  # the worker has answered already: no, and why
                    await call.write(request)
                    async for part in parts:
                        await call.write(pb.WriteLaneRequest(content=part))
                    await call.done_writing()
                return lanes.from_worker((await call).lane)
            finally:
                call.cancel()

    async def close_session(self, record: SessionRecord, timeout: float) -> int:
        """Returns the final history length."""
        answer: pb.CloseSessionResponse = await self._ask(
            "CloseSession", pb.CloseSessionRequest(**_lease(record)), timeout
        )
        return answer.final_history_length

    async def _ask_again(self, method: str, request: Message, timeout: float | None) -> Any:
        """As `_ask`, of what may be repeated: behind a tunnel that breaks the worker lives, and is asked once more."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return await self._ask(method, request, None if until is None else until - time.monotonic())
            except worker_errors.WorkerUnreachable:
                if self.is_gone or self._is_closed or not self.is_waited_for:
                    raise
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _ask(self, method: str, request: Message, timeout: float | None) -> Any:
        """The answer to a call; raises WorkerUnreachable if the worker is lost before it."""
        with self._calling(method) as metadata:
            call = getattr(self._stub, method)(request, timeout=timeout, metadata=metadata)
            self._asked.add(call)
            try:
                return await call
            except asyncio.CancelledError:
                if is_cancelled():
                    raise
                raise worker_errors.WorkerUnreachable("the worker was lost before it answered") from None
            finally:
                self._asked.discard(call)

    @contextmanager
    def _calling(self, method: str, *follows: SpanContext) -> Iterator[tracing.Metadata]:
        if self._is_closed:
            raise worker_errors.WorkerUnreachable("the channel to the worker is closed")
        if self.answers.is_silent:
            raise worker_errors.WorkerUnreachable("the worker does not answer")
        self._num_calls += 1
        try:
            with tracing.client_span(_SERVICE + method, self._address, follows) as metadata:
                try:
                    yield metadata
                except grpc.aio.AioRpcError as error:
                    raise worker_errors.translated(error) from error
        finally:
            self._num_calls -= 1


def _lease(record: SessionRecord) -> dict[str, Any]:
    return {"session_id": record.session_id, "epoch": record.epoch}


def _position(record: SessionRecord) -> dict[str, Any]:
    """Where the lane is believed to be; the worker refuses what does not follow on."""
    return {
        **_lease(record),
        "history_length": record.history_length,
        "operation_number": record.operation_number,
        "history_digest": record.digest_at(record.history_length),
    }
