"""kakeya.worker.v1.VerifierService: the engine over gRPC."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import NamedTuple

import structlog

from kakeya_shared.errors.tree import NoWorker
from kakeya_shared.rpc import tracing
from kakeya_shared.rpc.rpc_boundary import Context
from kakeya_shared.rpc.served_calls import tell
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from kakeya_stubs.worker.v1.verifier_pb2_grpc import VerifierServiceServicer
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.lane_state import LaneState, OpenLane
from kakeya_worker.engine.lanes.operation import Generate
from kakeya_worker.engine.lanes.results import Finish, GenerateResult
from kakeya_worker.grammars.constraint import Constraint
from kakeya_worker.grammars.grammars import Grammars
from kakeya_worker.grammars.reasoning import ReasonedConstraint
from kakeya_worker.joining.lease import Lease
from kakeya_worker.service import open_request, operation_requests
from kakeya_worker.service.answer_streams import AnswerStream, AnswerStreams, detail_message
from kakeya_worker.service.operation_requests import Answer, OwnAnswer, SharedAnswer
from kakeya_worker.snapshots.lane_transfer import LaneTransfer
from kakeya_worker.snapshots.snapshots import Snapshots

SERVICE_NAME = "kakeya.worker.v1.VerifierService"
# What is counted is no session's. Acknowledgements belong to a call that was let in: refused once, they are not sent
# again, and the call would pause for good where the lease is renewed.
_OPEN = frozenset(f"/{SERVICE_NAME}/{method}" for method in ("GetSlab", "Acknowledge", "StreamAnswers"))
_FINISH_REASONS = {
    Finish.MAX_TOKENS: pb.FINISH_REASON_MAX_TOKENS,
    Finish.EOS: pb.FINISH_REASON_EOS,
    Finish.STOP_SEQUENCE: pb.FINISH_REASON_STOP_SEQUENCE,
    Finish.TRUNCATED: pb.FINISH_REASON_TRUNCATED,
}


class _Serving(NamedTuple):
    engine: Engine
    snapshots: Snapshots
    transfer: LaneTransfer
    grammars: Grammars


class VerifierService(VerifierServiceServicer):
    """Until a model is loaded every call is UNAVAILABLE.

    Args:
        lease: of this worker; None: it joins no router.
    """

    def __init__(self, lease: Lease | None = None) -> None:
        self._lease = lease
        self._serving: _Serving | None = None
        self._answer_streams = AnswerStreams()

    def begin(self, engine: Engine, snapshots: Snapshots, grammars: Grammars) -> None:
        """From here on calls are answered."""
        self._serving = _Serving(engine, snapshots, LaneTransfer(engine), grammars)

    def end(self) -> None:
        """Nothing runs any more: what stands ends, so that nobody waits for it."""
        self._answer_streams.end()

    async def let_in(self, method: str, _metadata: tracing.Metadata) -> Mapping[str, str]:
        """A `rpc_boundary.Guard`: a worker whose lease has lapsed answers no call. What runs already goes on until a
        router is heard, since nobody can journal it. Raises StaleEpoch, NoWorker.
        """
        # A lease that is held costs each call this look and no more.
        if self._lease is not None and self._lease.clock() >= self._lease.ends_at and method not in _OPEN:
            await self._lease.check()
        return {}

    async def OpenSession(self, request: pb.OpenSessionRequest, context: Context) -> pb.OpenSessionResponse:
        engine = self._loaded(request.session_id).engine
        open_request.check(request, engine.proposers.names)
        self._check_incarnation(request.incarnation)
        opened = await self._open(engine, request)
        return pb.OpenSessionResponse(lane=_lane_state(opened.state), sink=opened.sink, window=opened.window)

    async def Append(self, request: pb.AppendRequest, context: Context) -> pb.AppendResponse:
        engine = self._loaded(request.session_id).engine
        append = operation_requests.append(request, engine.facts.vocab_size)
        engine.submit(append)
        with operation_requests.timed_append(append):
            try:
                result = await asyncio.wrap_future(append.future)
            finally:
                engine.cancel(append)
        _annotate(result.lane, appended=len(request.token_ids))
        return pb.AppendResponse(
            lane=_lane_state(result.lane),
            prefill_duration_seconds=result.prefill_seconds,
            evicted_token_count=result.num_evicted,
            logprobs=map(detail_message, result.details),
        )

    def Generate(self, request: pb.GenerateRequest, context: Context) -> AsyncIterator[pb.GenerateResponse]:
        return self._generate(request, OwnAnswer(self._loaded(request.session_id).engine.acknowledge))

    async def _generate(self, request: pb.GenerateRequest, answer: Answer) -> AsyncIterator[pb.GenerateResponse]:
        engine = self._loaded(request.session_id).engine
        generate = operation_requests.generate(request, engine.facts.vocab_size, answer.put, answer.hand_over)
        generate.constraint = await self._constraint(
            request, (generate.eos_token_ids, generate.previous_token_ids), engine.facts.vocab_size
        )
        engine.submit(generate)
        with operation_requests.timed_generate(generate):
            try:
                async for response in answer.responses(generate):
                    yield response
                result = generate.future.result()
            finally:
                engine.cancel(generate)
        _annotate(result.lane, generated=result.num_generated)
        yield pb.GenerateResponse(done=_done(result))

    async def StreamAnswers(
        self, requests: AsyncIterator[pb.StreamAnswersRequest], context: Context
    ) -> AsyncIterator[pb.StreamAnswersResponse]:
        def serve(stream: AnswerStream, number: int, request: pb.GenerateRequest) -> AsyncIterator[pb.GenerateResponse]:
            return self._generate(request, SharedAnswer(stream, number))

        acknowledge = self._loaded().engine.acknowledge
        async with aclosing(self._answer_streams.stand(requests, serve, acknowledge)) as responses:
            async for response in responses:
                yield response

    async def _constraint(
        self, request: pb.GenerateRequest, so_far: tuple[frozenset[int], tuple[int, ...]], vocab_size: int
    ) -> Constraint | ReasonedConstraint | None:
        """What its tokens are held to. Raises InvalidField or TokenOutOfVocabulary.

        Args:
            so_far: the ids that end it, and what it has produced before.
        """
        grammar = operation_requests.grammar(request.grammar) if request.HasField("grammar") else None
        grammars = self._loaded(request.session_id).grammars
        if request.HasField("reasoning"):
            return await grammars.reasoned(operation_requests.reasoning(request, vocab_size), grammar, *so_far)
        return None if grammar is None else await grammars.constraint(grammar, *so_far)

    async def CheckGrammar(self, request: pb.CheckGrammarRequest, context: Context) -> pb.CheckGrammarResponse:
        await self._loaded().grammars.check(operation_requests.grammar(request.grammar))
        return pb.CheckGrammarResponse()

    async def Stop(self, request: pb.StopRequest, context: Context) -> pb.StopResponse:
        engine = self._loaded(request.session_id).engine
        journaled_length = request.journaled_length if request.HasField("journaled_length") else None
        stopping = engine.stop_operation(request.session_id, request.epoch, journaled_length, request.operation_number)
        stopped = await asyncio.wrap_future(stopping)
        _annotate(stopped.state)
        return pb.StopResponse(lane=_lane_state(stopped.state), token_ids=stopped.token_ids)

    async def Acknowledge(self, request: pb.AcknowledgeRequest, context: Context) -> pb.AcknowledgeResponse:
        """Waits for no step. One that comes late may count for the next Generate: it then pauses later, once."""
        engine = self._loaded(request.session_id).engine
        operation = engine.lanes.find(request.session_id, request.epoch).operation
        if isinstance(operation, Generate) and operation.acknowledges:
            engine.acknowledge(operation, request.num_tokens, request.journaled_length)
        return pb.AcknowledgeResponse()

    async def CloseSession(self, request: pb.CloseSessionRequest, context: Context) -> pb.CloseSessionResponse:
        engine = self._loaded(request.session_id).engine
        length = await asyncio.wrap_future(engine.close(request.session_id, request.epoch))
        return pb.CloseSessionResponse(final_history_length=length)

    async def Rewind(self, request: pb.RewindRequest, context: Context) -> pb.RewindResponse:
        engine = self._loaded(request.session_id).engine
        rewinding = engine.rewind(
            request.session_id,
            request.epoch,
            request.history_length,
            request.target_length,
            request.operation_number,
            history_digest=request.history_digest if request.HasField("history_digest") else None,
        )
        return pb.RewindResponse(lane=_lane_state(await asyncio.wrap_future(rewinding)))

    async def WriteSnapshot(self, request: pb.WriteSnapshotRequest, context: Context) -> pb.WriteSnapshotResponse:
        snapshots = self._loaded(request.session_id).snapshots
        written = await snapshots.write(request.session_id, request.epoch, request.start, request.prefix)
        return pb.WriteSnapshotResponse(
            name=written.name,
            length=written.length,
            size_bytes=written.size_bytes,
            history_digest=written.history_digest,
        )

    async def ReadLane(self, request: pb.ReadLaneRequest, context: Context) -> AsyncIterator[pb.ReadLaneResponse]:
        transfer = self._loaded(request.session_id).transfer
        async with aclosing(transfer.read(request.session_id, request.epoch)) as parts:
            async for content in parts:
                yield pb.ReadLaneResponse(content=content)

    async def WriteLane(self, requests: AsyncIterator[pb.WriteLaneRequest], context: Context) -> pb.WriteLaneResponse:
        first = await anext(requests, pb.WriteLaneRequest())
        transfer = self._loaded(first.session_id).transfer
        open_request.check_lease(first)
        self._check_incarnation(first.incarnation)
        parts = (request.content async for request in requests)
        opened = await transfer.write(
            first.session_id,
            first.epoch,
            first.tenant,
            parts,
            inexact=first.inexact,
            speculation=first.speculation,
        )
        return pb.WriteLaneResponse(lane=_lane_state(opened.state))

    async def DeleteSnapshots(self, request: pb.DeleteSnapshotsRequest, context: Context) -> pb.DeleteSnapshotsResponse:
        await self._loaded().snapshots.delete(request.names)
        return pb.DeleteSnapshotsResponse()

    async def GetSlab(self, request: pb.GetSlabRequest, context: Context) -> pb.GetSlabResponse:
        totals = self._loaded().engine.lanes.totals()
        return pb.GetSlabResponse(
            slab_bytes=totals.slab_bytes,
            lane_bytes=totals.lane_bytes,
            num_lanes=totals.num_lanes,
            num_lanes_in_use=totals.num_lanes_in_use,
            kv_live_bytes=totals.kv_live_bytes,
            kv_bytes_per_token=totals.kv_bytes_per_token,
        )

    async def _open(self, engine: Engine, request: pb.OpenSessionRequest) -> OpenLane:
        session_id, epoch, tenant = request.session_id, request.epoch, request.tenant
        if request.snapshots:
            snapshots = self._loaded().snapshots
            return await snapshots.restore(
                session_id, epoch, request.snapshots, tenant, inexact=request.inexact, speculation=request.speculation
            )
        source = open_request.source(request)
        if source is None:
            return await asyncio.wrap_future(engine.open(session_id, epoch, open_request.options(request), tenant))
        return await asyncio.wrap_future(engine.fork(session_id, epoch, source, tenant))

    def _check_incarnation(self, meant: str) -> None:
        """Raises StaleEpoch."""
        if self._lease is not None:
            self._lease.check_incarnation(meant)

    def _loaded(self, session_id: str = "") -> _Serving:
        if self._serving is None:
            raise NoWorker("the worker is still loading its model", retry_after_seconds=1.0)
        if session_id:
            structlog.contextvars.bind_contextvars(session_id=session_id)
            tracing.annotate_session(session_id)
        return self._serving


def _done(result: GenerateResult) -> pb.GenerateDone:
    return pb.GenerateDone(
        finish_reason=_FINISH_REASONS[result.finish],
        generated_token_count=result.num_generated,
        lane=_lane_state(result.lane),
        prefill_duration_seconds=result.prefill_seconds,
        total_duration_seconds=result.total_seconds,
        evicted_token_count=result.num_evicted,
        drafted_token_count=result.num_drafted,
        accepted_token_count=result.num_accepted,
        session_closed=result.is_closed,
    )


def _lane_state(state: LaneState) -> pb.LaneState:
    return pb.LaneState(
        history_length=state.history_length,
        kv_live_bytes=state.kv_live_bytes,
        retained=[pb.TokenRange(start=tokens.start, end=tokens.stop) for tokens in state.retained],
        num_rewinds=state.num_rewinds,
        history_digest=state.history_digest,
    )


def _annotate(state: LaneState, **counts: int) -> None:
    num_retained = sum(map(len, state.retained))
    tell(
        history_length=state.history_length,
        kv_live_bytes=state.kv_live_bytes,
        retained=num_retained,
        forgotten=state.history_length - num_retained,
        **counts,
    )
