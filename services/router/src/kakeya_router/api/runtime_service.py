"""kakeya.v1.RuntimeService: the public API, in terms of sessions and operations."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import grpc
import structlog

from kakeya_router.access import callers
from kakeya_router.api import session_messages
from kakeya_router.api.call_gate import CallGate
from kakeya_router.api.models import Models
from kakeya_router.api.session_pages import SessionPages
from kakeya_router.api.stored_objects import StoredObjects
from kakeya_router.contract import creates, generates, lanes, refusals, turns
from kakeya_router.contract.appends import AppendRequest
from kakeya_router.contract.generates import Begun, Ended, GenerateRequest
from kakeya_router.contract.tags import FindRequest, TagRequest
from kakeya_router.contract.turns import Held, Searched, TurnRequest
from kakeya_router.contract.validation import MAX_REQUEST_ID_BYTES, RequestLimits, check_text
from kakeya_router.operations.append import Appending
from kakeya_router.operations.generate import Generating
from kakeya_router.sessions.park_requests import ParkRequests
from kakeya_router.sessions.rewinding import Rewinding
from kakeya_router.sessions.sessions import Sessions
from kakeya_router.sessions.tagging import Tagging
from kakeya_router.sessions.turns import Turns
from kakeya_router.store.session_record import LaneState, SessionRecord, State
from kakeya_router.store.sessions.operation_store import OperationStore
from kakeya_router.store.sessions.session_store import Glance
from kakeya_shared.rpc import tracing
from kakeya_shared.rpc.rpc_boundary import Context
from kakeya_shared.rpc.served_calls import tell
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1 import runtime_pb2_grpc

SERVICE = api.DESCRIPTOR.services_by_name["RuntimeService"].full_name
OP_ID_KEY = "kakeya-op-id"

Responses = AsyncGenerator[api.GenerateResponse, None]
TurnResponses = AsyncGenerator[api.TurnResponse, None]


@dataclass(eq=False)
class RuntimeService(runtime_pb2_grpc.RuntimeServiceServicer):
    _store: OperationStore
    _sessions: Sessions
    _models: Models
    _appending: Appending
    _generating: Generating
    _turns: Turns
    _rewinding: Rewinding
    _gate: CallGate
    _limits: RequestLimits
    _pages: SessionPages
    _park_requests: ParkRequests
    _tagging: Tagging
    _objects: StoredObjects

    def register(self, server: grpc.aio.Server) -> None:
        runtime_pb2_grpc.add_RuntimeServiceServicer_to_server(self, server)

    async def CreateSession(self, request: api.CreateSessionRequest, context: Context) -> api.CreateSessionResponse:
        with self._gate.inside():
            record = await self._sessions.create(creates.create(request, self._limits))
        _observe(record.session_id)
        return session_messages.created(record)

    async def ForkSession(self, request: api.ForkSessionRequest, context: Context) -> api.ForkSessionResponse:
        with self._gate.inside():
            record = await self._sessions.create(creates.fork(request, self._limits))
        _observe(record.session_id)
        return api.ForkSessionResponse(session=session_messages.created(record))

    async def AppendTokens(self, request: api.AppendTokensRequest, context: Context) -> api.AppendTokensResponse:
        with self._gate.inside():
            asked = AppendRequest.of(request, self._limits)
            answer = await self._appending.append(await self._known(asked.session_id), asked)
        _annotate(answer.lane, appended=len(asked.token_ids))
        return answer.message()

    async def Generate(self, request: api.GenerateRequest, context: Context) -> Responses:
        with self._gate.inside():
            asked = GenerateRequest.of(request, self._limits)
            record = await self._known(asked.session_id)
            async with aclosing(self._generating.generate(record, asked, context.time_remaining)) as events:
                async for event in events:
                    if isinstance(event, Begun):
                        await context.send_initial_metadata(((OP_ID_KEY, event.op_id),))
                        tell(op_id=event.op_id)
                    else:
                        yield generates.to_client(event)
                    if isinstance(event, Ended):
                        _annotate(event.done.lane, generated=event.done.generated_token_count)

    async def Turn(self, request: api.TurnRequest, context: Context) -> TurnResponses:
        with self._gate.inside():
            asked = TurnRequest.of(request, self._limits)
            async with aclosing(self._turns.turn(asked, context.time_remaining)) as events:
                async for event in events:
                    if isinstance(event, Searched):
                        yield api.TurnResponse(found=event.message())
                    elif isinstance(event, Held):
                        _observe(event.record.session_id)
                        await context.send_initial_metadata(((OP_ID_KEY, event.op_id),))
                        tell(op_id=event.op_id)
                        found = event.searched.message() if event.searched else None
                        yield api.TurnResponse(session=session_messages.created(event.record), found=found)
                    else:
                        yield turns.to_client(event)
                    if isinstance(event, Ended):
                        num_generated = event.done.generated_token_count
                        _annotate(event.done.lane, appended=len(asked.token_ids), generated=num_generated)

    async def CloseSession(self, request: api.CloseSessionRequest, context: Context) -> api.CloseSessionResponse:
        with self._gate.inside(frees=True):
            if request_id := creates.given_up(request):
                final_length = await self._sessions.give_up(request_id)
            else:
                session_id = callers.check_issued(request.session_id)
                _observe(session_id)
                final_length = await self._sessions.close(session_id, own=True)
        tell(history_length=final_length)
        return api.CloseSessionResponse(final_history_length=final_length)

    async def GetSessionInfo(self, request: api.GetSessionInfoRequest, context: Context) -> api.GetSessionInfoResponse:
        with self._gate.inside():
            glance = await self._glance(request.session_id)
        if glance.record.state is State.CLOSING:
            raise refusals.not_found()
        record = session_messages.seen(glance)
        if record.state is State.LOST:
            raise refusals.lost()
        tell(history_length=record.history_length, kv_live_bytes=record.kv_live_bytes)
        return session_messages.info(record, glance)

    async def ListSessions(self, request: api.ListSessionsRequest, context: Context) -> api.ListSessionsResponse:
        with self._gate.inside():
            page, next_token = await self._pages.page("", request.page_token, request.page_size)
        records = ((each, each.record) for each in page)
        own = [each for each, record in records if callers.is_callers(record) and record.state is not State.CLOSING]
        return api.ListSessionsResponse(sessions=map(session_messages.listed, own), next_page_token=next_token)

    async def ParkSession(self, request: api.ParkSessionRequest, context: Context) -> api.ParkSessionResponse:
        with self._gate.inside():
            parked = await self._park_requests.park(await self._session(request.session_id))
        tell(history_length=parked.history_length)
        return api.ParkSessionResponse(history_length=parked.history_length, freed_bytes=parked.freed_bytes)

    async def ListModels(self, request: api.ListModelsRequest, context: Context) -> api.ListModelsResponse:
        with self._gate.inside():
            served = await self._models.served()
        return api.ListModelsResponse(models=served)

    async def RewindSession(self, request: api.RewindSessionRequest, context: Context) -> api.RewindSessionResponse:
        expected = request.expected_history_length if request.HasField("expected_history_length") else None
        check_text("op_id", request.op_id, MAX_REQUEST_ID_BYTES)
        with self._gate.inside():
            record = await self._known(request.session_id)
            record = await self._rewinding.rewind(
                record, request.target_length, expected, only_untagged=request.only_untagged, op_id=request.op_id
            )
        tell(history_length=record.history_length, kv_live_bytes=record.kv_live_bytes)
        return api.RewindSessionResponse(
            history_length=record.history_length,
            kv_live_bytes=record.kv_live_bytes,
            retained=lanes.retained(record.retained),
        )

    async def TagTurn(self, request: api.TagTurnRequest, context: Context) -> api.TagTurnResponse:
        with self._gate.inside():
            asked = TagRequest.of(request)
            await self._tagging.tag(await self._known(asked.session_id), asked)
        return api.TagTurnResponse()

    async def FindSession(self, request: api.FindSessionRequest, context: Context) -> api.FindSessionResponse:
        with self._gate.inside():
            found = await self._tagging.find(FindRequest.of(request))
        if found is None:
            return api.FindSessionResponse()
        _observe(found.session_id)
        return found.message()

    async def StoreObject(self, request: api.StoreObjectRequest, context: Context) -> api.StoreObjectResponse:
        with self._gate.inside():
            await self._objects.store(request)
        return api.StoreObjectResponse()

    async def FetchObject(self, request: api.FetchObjectRequest, context: Context) -> api.FetchObjectResponse:
        with self._gate.inside():
            return await self._objects.fetch(request)

    async def UpdateObject(self, request: api.UpdateObjectRequest, context: Context) -> api.UpdateObjectResponse:
        with self._gate.inside():
            return api.UpdateObjectResponse(version=await self._objects.update(request))

    async def DeleteObject(self, request: api.DeleteObjectRequest, context: Context) -> api.DeleteObjectResponse:
        with self._gate.inside():
            await self._objects.delete(request)
        return api.DeleteObjectResponse()

    async def _session(self, asked: str) -> SessionRecord:
        """The caller's session; raises SessionNotFound, StoreUnavailable."""
        session_id = callers.check_issued(asked)
        _observe(session_id)
        return callers.callers_own(await self._store.get(session_id))

    async def _known(self, asked: str) -> SessionRecord:
        """As `_session`, for what reads it anew."""
        session_id = callers.check_issued(asked)
        _observe(session_id)
        return callers.callers_own(await self._store.known(session_id))

    async def _glance(self, asked: str) -> Glance:
        """As `_session`, without touching it."""
        session_id = callers.check_issued(asked)
        _observe(session_id)
        glance = await self._store.glance(session_id)
        if glance is None:
            raise refusals.not_found()
        callers.callers_own(glance.record)
        return glance


def _observe(session_id: str) -> None:
    """Puts the session on the call's span and log lines."""
    tracing.annotate_session(session_id)
    structlog.contextvars.bind_contextvars(session_id=session_id)


def _annotate(lane: LaneState, **counts: int) -> None:
    num_forgotten = lane.num_dropped_tokens
    tell(
        history_length=lane.history_length,
        kv_live_bytes=lane.kv_live_bytes,
        retained=lane.history_length - num_forgotten,
        forgotten=num_forgotten,
        **counts,
    )
