"""kakeya.v1.RuntimeService: the public API, in terms of sessions and operations."""

import hashlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import structlog

from kakeya_router.access import ownership
from kakeya_router.api import session_messages
from kakeya_router.api.call_gate import CallGate
from kakeya_router.api.models import Models
from kakeya_router.api.session_pages import SessionPages
from kakeya_router.contract import generation, refusals, validation
from kakeya_router.contract.request_limits import RequestLimits
from kakeya_router.operations.generate_stream import GenerateStream
from kakeya_router.operations.lanes import Lanes
from kakeya_router.operations.operations import Operations
from kakeya_router.sessions.park_requests import ParkRequests
from kakeya_router.sessions.rewinding import Rewinding
from kakeya_router.sessions.sessions import Sessions
from kakeya_router.store.records import SessionRecord, State
from kakeya_router.store.sessions.packed_tokens import pack
from kakeya_router.store.sessions.session_changes import Intent
from kakeya_router.store.sessions.session_replies import Glance
from kakeya_router.store.sessions.session_store import SessionStore
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_shared.errors.tree import EmptyHistory
from kakeya_shared.rpc import tracing
from kakeya_shared.rpc.rpc_boundary import Context
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1 import runtime_pb2_grpc

SERVICE = api.DESCRIPTOR.services_by_name["RuntimeService"].full_name
OP_ID_KEY = "kakeya-op-id"

Responses = AsyncGenerator[api.GenerateResponse, None]


class RuntimeService(runtime_pb2_grpc.RuntimeServiceServicer):
    def __init__(
        self,
        store: SessionStore,
        sessions: Sessions,
        models: Models,
        operations: Operations,
        lanes: Lanes,
        rewinding: Rewinding,
        workers: WorkerClients,
        gate: CallGate,
        limits: RequestLimits,
        pages: SessionPages,
        park_requests: ParkRequests,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._models = models
        self._operations = operations
        self._lanes = lanes
        self._rewinding = rewinding
        self._workers = workers
        self._gate = gate
        self._limits = limits
        self._pages = pages
        self._park_requests = park_requests

    async def CreateSession(self, request: api.CreateSessionRequest, context: Context) -> api.CreateSessionResponse:
        with self._gate.inside():
            self._limits.check_label(request.client_label)
            record = await self._sessions.create(request)
        _observe(record.session_id)
        return session_messages.created(record)

    async def ForkSession(self, request: api.ForkSessionRequest, context: Context) -> api.ForkSessionResponse:
        create = api.CreateSessionRequest(
            fork_from=request.source,
            client_label=request.client_label,
            request_id=request.request_id,
            eos_token_ids=request.eos_token_ids,
            ttl_seconds=request.ttl_seconds if request.HasField("ttl_seconds") else None,
            inexact_resume=request.inexact_resume,
            ephemeral=request.ephemeral,
        )
        return api.ForkSessionResponse(session=await self.CreateSession(create, context))

    async def AppendTokens(self, request: api.AppendTokensRequest, context: Context) -> api.AppendTokensResponse:
        with self._gate.inside():
            response = await self._append(request)
        tracing.annotate(
            history_length=response.history_length,
            kv_live_bytes=response.kv_live_bytes,
            token_count=len(request.token_ids),
        )
        return response

    async def Generate(self, request: api.GenerateRequest, context: Context) -> Responses:
        with self._gate.inside():
            async with aclosing(self._generate(request, context)) as responses:
                async for response in responses:
                    yield response

    async def CloseSession(self, request: api.CloseSessionRequest, context: Context) -> api.CloseSessionResponse:
        with self._gate.inside(frees=True):
            if request.request_id:
                validation.check_close(request)
                final_length = await self._sessions.give_up(request.request_id)
            else:
                ownership.check_issued(request.session_id)
                _observe(request.session_id)
                final_length = await self._sessions.close(request.session_id, own=True)
        tracing.annotate(history_length=final_length)
        return api.CloseSessionResponse(final_history_length=final_length)

    async def GetSessionInfo(self, request: api.GetSessionInfoRequest, context: Context) -> api.GetSessionInfoResponse:
        with self._gate.inside():
            glance = await self._glance(request.session_id)
        if glance.record.state is State.CLOSING:
            raise refusals.not_found()
        record = session_messages.seen(glance.record, alive=glance.alive)
        if record.state is State.LOST:
            raise refusals.lost()
        tracing.annotate(history_length=record.history_length, kv_live_bytes=record.kv_live_bytes)
        return session_messages.info(record, glance)

    async def ListSessions(self, request: api.ListSessionsRequest, context: Context) -> api.ListSessionsResponse:
        with self._gate.inside():
            page, next_token = await self._pages.page("", request.page_token, request.page_size)
        own = [each for each in page.records if ownership.is_callers(each) and each.state is not State.CLOSING]
        return api.ListSessionsResponse(
            sessions=[session_messages.listed(record, page) for record in own], next_page_token=next_token
        )

    async def ParkSession(self, request: api.ParkSessionRequest, context: Context) -> api.ParkSessionResponse:
        with self._gate.inside():
            parked = await self._park_requests.park(await self._session(request.session_id))
        tracing.annotate(history_length=parked.history_length)
        return api.ParkSessionResponse(history_length=parked.history_length, freed_bytes=parked.freed_bytes)

    async def ListModels(self, request: api.ListModelsRequest, context: Context) -> api.ListModelsResponse:
        with self._gate.inside():
            served = await self._models.served()
        return api.ListModelsResponse(models=served)

    async def RewindSession(self, request: api.RewindSessionRequest, context: Context) -> api.RewindSessionResponse:
        expected = request.expected_history_length if request.HasField("expected_history_length") else None
        with self._gate.inside():
            record = await self._session(request.session_id)
            record = await self._rewinding.rewind(record, request.target_length, expected)
        tracing.annotate(history_length=record.history_length, kv_live_bytes=record.kv_live_bytes)
        return api.RewindSessionResponse(
            history_length=record.history_length,
            kv_live_bytes=record.kv_live_bytes,
            retained=generation.retained(record),
        )

    async def _session(self, session_id: str) -> SessionRecord:
        """The caller's session; raises SessionNotFound, StoreUnavailable."""
        ownership.check_issued(session_id)
        _observe(session_id)
        return ownership.callers_own(await self._store.get(session_id))

    async def _glance(self, session_id: str) -> Glance:
        """As `_session`, without touching it."""
        ownership.check_issued(session_id)
        _observe(session_id)
        glance = await self._store.glance(session_id)
        if glance is None:
            raise refusals.not_found()
        ownership.callers_own(glance.record)
        return glance

    async def _append(self, request: api.AppendTokensRequest) -> api.AppendTokensResponse:
        token_ids = request.token_ids
        self._limits.check_append(len(token_ids))
        record = await self._session(request.session_id)
        validation.check_vocabulary("token_ids", token_ids, record.vocab_size)
        digest = _digest(token_ids)
        intent = Intent("append", {"num_tokens": len(token_ids)}, len(token_ids), digest)
        async with self._operations.running(record, intent) as operation:
            record = operation.record
            if request.HasField("expected_history_length"):
                expected = request.expected_history_length
                if _is_repeated(record, expected, digest):
                    return _unchanged(record)
                validation.check_history_length(expected, record.history_length)
            if not token_ids:
                return _unchanged(record)
            self._limits.check_room(record.history_length, len(token_ids))
            self._operations.check_room(record, len(token_ids))
            answer = await self._lanes.append(operation, token_ids)
            await self._operations.finish(operation, answer.lane)
        return api.AppendTokensResponse(
            history_length=answer.lane.history_length,
            kv_live_bytes=answer.lane.kv_live_bytes,
            prefill_duration_seconds=answer.prefill_duration_seconds,
            evicted_token_count=answer.evicted_token_count,
            retained=generation.kept(answer.lane),
        )

    async def _generate(self, request: api.GenerateRequest, context: Context) -> Responses:
        validation.check_generate(request)
        self._limits.check_generate(request.max_tokens)
        record = await self._session(request.session_id)
        validation.check_generate_vocabulary(request, record.vocab_size)
        sampling = generation.sampling(request)
        async with self._operations.running(record, generation.intent(request, sampling)) as operation:
            record = operation.record
            if request.HasField("expected_history_length"):
                validation.check_history_length(request.expected_history_length, record.operation_start)
            if not record.operation_start:
                raise EmptyHistory("append tokens before generating")
            if request.op_id:
                sampling.seed = record.operation_seed
            max_tokens = self._limits.within_room(record.operation_start, request.max_tokens)
            await context.send_initial_metadata(((OP_ID_KEY, operation.op_id),))
            tracing.annotate(op_id=operation.op_id)
            produced = await self._lanes.produced(operation, request.resume_token_ids) if request.op_id else []
            if not produced:
                self._operations.check_room(record, 0)
            missed = produced[len(request.resume_token_ids) :]
            if not request.resume_token_ids and (
                truncated := generation.truncated(record, is_under_way=bool(produced))
            ):
                yield truncated
            for token_id in missed:
                yield api.GenerateResponse(token_id=token_id)
            stream = GenerateStream(
                self._workers, self._lanes, operation, request, sampling, max_tokens, context.time_remaining, produced
            )
            async with aclosing(stream.tokens()) as tokens:
                async for response in tokens:
                    yield response
            done = stream.done
            await self._operations.finish(operation, done.lane)
        tracing.annotate(
            history_length=done.lane.history_length,
            kv_live_bytes=done.lane.kv_live_bytes,
            token_count=done.generated_token_count,
        )
        yield generation.done(done, operation.op_id, sampling.seed, capped=max_tokens < request.max_tokens)
        await self._operations.closed(operation)


def _observe(session_id: str) -> None:
    """Puts the session on the call's span and log lines."""
    tracing.annotate_session(session_id)
    structlog.contextvars.bind_contextvars(session_id=session_id)


def _digest(token_ids: Sequence[int]) -> str:
    return hashlib.sha256(pack(token_ids)).hexdigest()


def _is_repeated(record: SessionRecord, expected_history_length: int, digest: str) -> bool:
    """Whether the history already ends in exactly this append, made at the expected length."""
    last_append = (record.append_start, record.append_end, record.append_digest)
    return last_append == (expected_history_length, record.history_length, digest)


def _unchanged(record: SessionRecord) -> api.AppendTokensResponse:
    return api.AppendTokensResponse(
        history_length=record.history_length,
        kv_live_bytes=record.kv_live_bytes,
        retained=generation.retained(record),
    )
