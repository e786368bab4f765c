"""Calls to the workers' VerifierService; gRPC's errors end here."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import grpc

from kakeya_router.contract.requests import GenerateRequest
from kakeya_router.store.session_record import UNSET, LaneState, Overflow, SessionRecord
from kakeya_router.workers import answers
from kakeya_router.workers.acknowledgements import Acknowledgements
from kakeya_router.workers.answers import Appended, Done, Opened, Stopped, Token, WrittenSnapshot
from kakeya_shared.errors import error_details
from kakeya_shared.errors.tree import DeadlineExceeded, SessionNotFound, StaleEpoch
from kakeya_shared.process.detached_tasks import Outcome
from kakeya_shared.rpc import tracing
from kakeya_shared.rpc.tls import open_channel
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from kakeya_stubs.worker.v1.verifier_pb2_grpc import VerifierServiceStub

T = TypeVar("T")

_SERVICE = "/kakeya.worker.v1.VerifierService/"
_ACKNOWLEDGE_SECONDS = 2.0
# From `done` to the end of a stream takes a worker milliseconds; the session is busy until then.
_END_SECONDS = 0.5

# A worker that vanished without a goodbye is noticed by keepalive; one that came back is found within a second.
_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),  # a new worker at an old one's address does not inherit its back-off
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # a minute, else
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]


class WorkerError(Outcome):
    """Base of what can go wrong with a call beside the errors of the tree."""


class WorkerUnreachable(WorkerError):
    """The worker did not answer: nobody knows whether the call took effect."""


class LaneGone(WorkerError):
    """The worker holds no lane for the session under this epoch, or none that is of use."""


class WorkerFault(WorkerError):
    """The worker failed in a way that the contract does not know."""


class RunningCall:
    """A call that another task may end; it then raises `asyncio.CancelledError` where it is awaited.

    Attributes:
        cancelled: nothing is called any more.
        worker_lost: this call was ended since its worker is gone.
    """

    def __init__(self) -> None:
        self._call: grpc.aio.Call | None = None
        self.cancelled = False
        self.worker_lost = False

    def started(self, call: grpc.aio.Call) -> None:
        self._call = call
        self.worker_lost = False
        if self.cancelled:
            call.cancel()

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
    """One worker's channel, in plaintext without credentials.

    Every method raises WorkerError or the error of the tree that the worker raised; `timeout` is in seconds, None
    for no limit, and passing it raises DeadlineExceeded.

    Attributes:
        was_there: a worker was seen at this address.
    """

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        self.credentials = credentials
        self._channel = open_channel(address, credentials, _OPTIONS)
        self._stub = VerifierServiceStub(self._channel)
        self._num_calls = 0
        self._asked: set[grpc.aio.Call] = set()
        self.was_there = False

    async def aclose(self) -> None:
        await self._channel.close()

    @property
    def idle(self) -> bool:
        """Whether no call runs; closing the channel would cancel it."""
        return not self._num_calls

    def end_calls(self) -> None:
        """All but those of operations, which end them themselves."""
        for call in self._asked:
            call.cancel()

    async def open_session(self, record: SessionRecord, source: SessionRecord | None, timeout: float) -> Opened:
        """Opens a lane, empty or with the history of a source."""
        request = pb.OpenSessionRequest(session_id=record.session_id, epoch=record.epoch, tenant=record.tenant)
        request.MergeFrom(_options(record) if source is None else _fork(source))
        with self._calling("OpenSession") as metadata:
            return answers.opened(
                await self._answer(self._stub.OpenSession(request, timeout=timeout, metadata=metadata))
            )

    async def append(self, record: SessionRecord, token_ids: Sequence[int], running: RunningCall) -> Appended:
        """Without a time limit: the tokens are in the history, and somebody has to prefill them."""
        request = pb.AppendRequest(
            session_id=record.session_id,
            epoch=record.epoch,
            history_length=record.history_length,
            token_ids=token_ids,
            operation_number=record.operation_number,
            history_digest=record.digest_at(record.history_length),
        )
        with self._calling("Append") as metadata:
            call = self._stub.Append(request, metadata=metadata)
            running.started(call)
            return answers.appended(await call)

    async def generate(
        self,
        record: SessionRecord,
        request: GenerateRequest,
        timeout: float | None,
        running: RunningCall,
        journaled_length: Callable[[], int],
        *,
        max_tokens: int,
        produced: Sequence[int],
    ) -> AsyncGenerator[Token | Done, None]:
        """Tokens, then `done`. Close the iterator (`contextlib.aclosing`) to end the call.

        Whoever asks for the next token has passed on the one before: the worker is told, and pauses when nobody asks.

        Args:
            journaled_length: what the worker need not remember.
            max_tokens: as far as the history has room for them.
            produced: the operation's tokens so far.
        """
        message = _generate(record, request, max_tokens, produced)
        with self._calling("Generate") as metadata:
            call = self._stub.Generate(message, timeout=timeout, metadata=metadata)
            running.started(call)
            is_done = False
            try:
                async with self._acknowledgements(message, journaled_length).sending() as acknowledgements:
                    async for response in call:
                        is_done = response.HasField("done")
                        yield answers.generated(response)
                        acknowledgements.pass_on()
            finally:
                await _end(call, _END_SECONDS if is_done else 0.0)

    async def stop(self, record: SessionRecord, journaled_length: int, timeout: float) -> Stopped:
        """What is committed, and what of it was generated after `journaled_length`."""
        request = pb.StopRequest(
            session_id=record.session_id,
            epoch=record.epoch,
            journaled_length=journaled_length,
            operation_number=record.operation_number,
        )
        with self._calling("Stop") as metadata:
            return answers.stopped(await self._answer(self._stub.Stop(request, timeout=timeout, metadata=metadata)))

    async def rewind(self, record: SessionRecord, length: int, timeout: float) -> LaneState:
        """Takes the lane back to a length; raises BoundaryNotReachable where it has forgotten what was there."""
        request = pb.RewindRequest(
            session_id=record.session_id,
            epoch=record.epoch,
            history_length=record.history_length,
            target_length=length,
            operation_number=record.operation_number,
            history_digest=record.digest_at(record.history_length),
        )
        with self._calling("Rewind") as metadata:
            answer = await self._answer(self._stub.Rewind(request, timeout=timeout, metadata=metadata))
            return answers.lane(answer.lane)

    async def restore_session(self, record: SessionRecord, names: Sequence[str], timeout: float) -> Opened:
        """Opens a lane with what snapshots hold; without names, an empty one."""
        request = pb.OpenSessionRequest(session_id=record.session_id, epoch=record.epoch, tenant=record.tenant)
        if names:
            request.snapshots.extend(names)
            request.inexact = record.inexact_resume
        else:
            request.MergeFrom(_options(record))
        with self._calling("OpenSession") as metadata:
            return answers.opened(
                await self._answer(self._stub.OpenSession(request, timeout=timeout, metadata=metadata))
            )

    async def write_snapshot(self, record: SessionRecord, start: int, prefix: str, timeout: float) -> WrittenSnapshot:
        """Writes what came since `start`, under a name that begins with the prefix."""
        request = pb.WriteSnapshotRequest(session_id=record.session_id, epoch=record.epoch, start=start, prefix=prefix)
        with self._calling("WriteSnapshot") as metadata:
            return answers.written(
                await self._answer(self._stub.WriteSnapshot(request, timeout=timeout, metadata=metadata))
            )

    async def delete_snapshots(self, names: Collection[str], timeout: float) -> None:
        with self._calling("DeleteSnapshots") as metadata:
            request = pb.DeleteSnapshotsRequest(names=names)
            await self._answer(self._stub.DeleteSnapshots(request, timeout=timeout, metadata=metadata))

    async def read_lane(self, record: SessionRecord, timeout: float) -> AsyncGenerator[bytes, None]:
        """What the session's lane keeps now, in parts."""
        request = pb.ReadLaneRequest(session_id=record.session_id, epoch=record.epoch)
        with self._calling("ReadLane") as metadata:
            call = self._stub.ReadLane(request, timeout=timeout, metadata=metadata)
            try:
                async for part in call:
                    yield part.content
            finally:
                call.cancel()

    async def write_lane(self, record: SessionRecord, parts: AsyncIterator[bytes], timeout: float) -> LaneState:
        """Opens a lane with what another worker has sent; what goes wrong with that ends the call."""
        request = pb.WriteLaneRequest(
            session_id=record.session_id, epoch=record.epoch, tenant=record.tenant, inexact=record.inexact_resume
        )
        with self._calling("WriteLane") as metadata:
            call = self._stub.WriteLane(timeout=timeout, metadata=metadata)
            try:
                with suppress(asyncio.InvalidStateError):  # the worker has answered already: no, and why
                    await call.write(request)
                    async for part in parts:
                        await call.write(pb.WriteLaneRequest(content=part))
                    await call.done_writing()
                return answers.lane((await call).lane)
            finally:
                call.cancel()

    async def close_session(self, record: SessionRecord, timeout: float) -> int:
        """Returns the final history length."""
        request = pb.CloseSessionRequest(session_id=record.session_id, epoch=record.epoch)
        with self._calling("CloseSession") as metadata:
            answer = await self._answer(self._stub.CloseSession(request, timeout=timeout, metadata=metadata))
            return answer.final_history_length

    def _acknowledgements(self, request: pb.GenerateRequest, journaled_length: Callable[[], int]) -> Acknowledgements:
        async def send(num_tokens: int) -> None:
            acknowledge = pb.AcknowledgeRequest(
                session_id=request.session_id,
                epoch=request.epoch,
                num_tokens=num_tokens,
                journaled_length=journaled_length(),
            )
            await self._stub.Acknowledge(acknowledge, timeout=_ACKNOWLEDGE_SECONDS)

        return Acknowledgements(send, len(request.previous_token_ids))

    async def _answer(self, call: grpc.aio.UnaryUnaryCall[Any, T]) -> T:
        """Raises WorkerUnreachable if the worker is lost before it answers."""
        self._asked.add(call)
        try:
            return await call
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise WorkerUnreachable("the worker was lost before it answered") from None
        finally:
            self._asked.discard(call)

    @contextmanager
    def _calling(self, method: str) -> Iterator[tracing.Metadata]:
        self._num_calls += 1
        try:
            with tracing.client_span(_SERVICE + method) as metadata:
                try:
                    yield metadata
                except grpc.aio.AioRpcError as error:
                    raise _translated(error) from error
        finally:
            self._num_calls -= 1


def _options(record: SessionRecord) -> pb.OpenSessionRequest:
    return pb.OpenSessionRequest(
        sink=_given(record.sink),
        window=_given(record.window),
        pin=_given(record.pin),
        refuse_overflow=record.on_overflow is Overflow.REFUSE,
    )


def _fork(source: SessionRecord) -> pb.OpenSessionRequest:
    """Beside a source there are no options: its lane has them."""
    return pb.OpenSessionRequest(
        fork_from=pb.ForkSource(
            session_id=source.session_id,
            epoch=source.epoch,
            history_length=source.history_length,
            history_digest=source.digest_at(source.history_length),
        )
    )


def _generate(
    record: SessionRecord, request: GenerateRequest, max_tokens: int, produced: Sequence[int]
) -> pb.GenerateRequest:
    sampling = request.sampling
    return pb.GenerateRequest(
        session_id=record.session_id,
        epoch=record.epoch,
        history_length=record.history_length,
        max_tokens=max_tokens,
        eos_token_ids=record.eos_token_ids,
        sampling=pb.Sampling(
            seed=sampling.seed,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            logit_bias=sampling.logit_bias,
        ),
        stop_token_sequences=[pb.TokenSequence(token_ids=sequence) for sequence in request.stop_token_sequences],
        logprobs=request.logprobs,
        previous_token_ids=produced,
        operation_number=record.operation_number,
        history_digest=record.digest_at(record.history_length),
        acknowledges=True,
    )


def _given(number: int) -> int | None:
    return None if number == UNSET else number


def _translated(error: grpc.aio.AioRpcError) -> Exception:
    raised = error_details.decode(error)
    if isinstance(raised, SessionNotFound | StaleEpoch):
        return LaneGone(raised.message)
    if raised is not None:
        return raised
    # CANCELLED: a server that shuts down resets calls that come in the same moment; what is cancelled here raises
    # CancelledError.
    if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return WorkerUnreachable(error.details())
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceeded("the deadline passed; what was committed stays")
    return WorkerFault(f"{error.code().name}: {error.details()}")


async def _end(call: Any, grace_seconds: float) -> None:
    """Cancels a stream, unless the worker ends it first: where its result is there, it would count as failed there."""
    try:
        if grace_seconds:
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_seconds):
                    await call.code()
    finally:
        call.cancel()
