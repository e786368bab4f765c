"""kakeya.worker.v1.VerifierService: the engine over gRPC."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import structlog

from kakeya_shared import tracing
from kakeya_shared.errors import InvalidField, NoWorker, TokenOutOfVocabulary
from kakeya_shared.rpc_boundary import Context
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from kakeya_stubs.worker.v1.verifier_pb2_grpc import VerifierServiceServicer
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.operation import Append, Generate, GenerateResult, LaneState
from kakeya_worker.engine.sampling import Sampling

SERVICE_NAME = "kakeya.worker.v1.VerifierService"


class VerifierService(VerifierServiceServicer):
    """Set `engine` once the model is loaded; until then every call is UNAVAILABLE."""

    def __init__(self) -> None:
        self.engine: Engine | None = None

    async def OpenSession(self, request: pb.OpenSessionRequest, context: Context) -> pb.OpenSessionResponse:
        engine = self._engine(request.session_id)
        geometry = engine.lanes.geometry
        if request.sink > geometry.sink:
            raise InvalidField(f"sink {request.sink} exceeds the lane's {geometry.sink}", metadata={"field": "sink"})
        if not 1 <= request.window <= geometry.window:
            raise InvalidField(
                f"window {request.window} is not within 1 and the lane's {geometry.window}",
                metadata={"field": "window"},
            )
        state = await asyncio.wrap_future(engine.open(request.session_id, request.epoch, request.sink, request.window))
        return pb.OpenSessionResponse(lane=_lane_state(state))

    async def Append(self, request: pb.AppendRequest, context: Context) -> pb.AppendResponse:
        engine = self._engine(request.session_id)
        _check_vocabulary(request.token_ids, engine.facts.vocab_size)
        append = Append(request.session_id, request.epoch, request.history_length, tuple(request.token_ids))
        engine.submit(append)
        try:
            result = await asyncio.wrap_future(append.future)
        finally:
            engine.cancel(append)
        _annotate(result.lane, token_count=len(request.token_ids))
        return pb.AppendResponse(
            lane=_lane_state(result.lane),
            prefill_duration_seconds=result.prefill_seconds,
            evicted_token_count=result.num_evicted,
        )

    async def Generate(self, request: pb.GenerateRequest, context: Context) -> AsyncIterator[pb.GenerateResponse]:
        engine = self._engine(request.session_id)
        loop = asyncio.get_running_loop()
        unread: asyncio.Queue[int | None] = asyncio.Queue()  # None: the future has resolved

        def put(token_id: int | None) -> None:
            loop.call_soon_threadsafe(unread.put_nowait, token_id)

        generate = _generate(request, on_token=put)
        generate.future.add_done_callback(lambda _: put(None))
        engine.submit(generate)
        try:
            while (token_id := await unread.get()) is not None:
                yield pb.GenerateResponse(token_id=token_id)
                engine.acknowledge(generate)
            result = generate.future.result()
        finally:
            engine.cancel(generate)
        _annotate(result.lane, token_count=result.num_generated)
        yield pb.GenerateResponse(done=_done(result))

    async def Stop(self, request: pb.StopRequest, context: Context) -> pb.StopResponse:
        engine = self._engine(request.session_id)
        state = await asyncio.wrap_future(engine.stop_operation(request.session_id, request.epoch))
        _annotate(state)
        return pb.StopResponse(lane=_lane_state(state))

    async def CloseSession(self, request: pb.CloseSessionRequest, context: Context) -> pb.CloseSessionResponse:
        engine = self._engine(request.session_id)
        length = await asyncio.wrap_future(engine.close(request.session_id, request.epoch))
        return pb.CloseSessionResponse(final_history_length=length)

    async def GetSlab(self, request: pb.GetSlabRequest, context: Context) -> pb.GetSlabResponse:
        totals = self._engine().lanes.totals()
        return pb.GetSlabResponse(
            slab_bytes=totals.slab_bytes,
            lane_bytes=totals.lane_bytes,
            num_lanes=totals.num_lanes,
            num_lanes_in_use=totals.num_lanes_in_use,
            kv_live_bytes=totals.kv_live_bytes,
            kv_bytes_per_token=totals.kv_bytes_per_token,
        )

    def _engine(self, session_id: str = "") -> Engine:
        if self.engine is None:
            raise NoWorker("the worker is still loading its model", retry_after_seconds=1.0)
        if session_id:
            structlog.contextvars.bind_contextvars(session_id=session_id)
            tracing.annotate_session(session_id)
        return self.engine


def _generate(request: pb.GenerateRequest, on_token: Callable[[int], None]) -> Generate:
    if request.max_tokens == 0:
        raise InvalidField("max_tokens must be at least 1", metadata={"field": "max_tokens"})
    sampling = request.sampling
    return Generate(
        request.session_id,
        request.epoch,
        request.history_length,
        max_tokens=request.max_tokens,
        eos_token_ids=frozenset(request.eos_token_ids),
        sampling=Sampling(sampling.seed, sampling.temperature, sampling.top_p, sampling.top_k),
        on_token=on_token,
    )


def _done(result: GenerateResult) -> pb.GenerateDone:
    return pb.GenerateDone(
        finish_reason=pb.FINISH_REASON_EOS if result.ended_by_eos else pb.FINISH_REASON_MAX_TOKENS,
        generated_token_count=result.num_generated,
        lane=_lane_state(result.lane),
        prefill_duration_seconds=result.prefill_seconds,
        total_duration_seconds=result.total_seconds,
        evicted_token_count=result.num_evicted,
    )


def _lane_state(state: LaneState) -> pb.LaneState:
    return pb.LaneState(history_length=state.history_length, kv_live_bytes=state.kv_live_bytes)


def _annotate(state: LaneState, **counts: int) -> None:
    tracing.annotate(history_length=state.history_length, kv_live_bytes=state.kv_live_bytes, **counts)


def _check_vocabulary(token_ids: Sequence[int], vocab_size: int) -> None:
    """One id out of range would fail the whole step, and other sessions with it."""
    largest = max(token_ids, default=0)
    if largest >= vocab_size:
        raise TokenOutOfVocabulary(f"token id {largest} is outside the vocabulary of {vocab_size}")
