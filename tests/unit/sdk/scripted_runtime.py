"""A runtime for the SDK's tests: the real contract on a real socket, with faults on request.

Its model counts: the next token is the last one plus one, modulo the vocabulary.
"""

import re
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

from kakeya_stubs.v1 import runtime_pb2 as pb
from kakeya_stubs.v1 import runtime_pb2_grpc

REASONS_PROTO = Path(__file__).resolve().parents[3] / "proto/kakeya/v1/error_reason.proto"
BYTES_PER_TOKEN = 1024
MAX_OBJECT_BYTES = 1 << 20
SINK, WINDOW, VOCAB_SIZE = 4, 16, 1000
FINGERPRINT = "f" * 64

Fault = Callable[[grpc.ServicerContext], None]


def documented_statuses() -> dict[str, grpc.StatusCode]:
    """The status that the contract writes beside each reason, by reason without prefix."""
    pattern = re.compile(r"// ([A-Z_]+)(?:, [a-z ]+ only)?:[^=]*?ERROR_REASON_([A-Z_]+) = ")
    return {reason: grpc.StatusCode[status] for status, reason in pattern.findall(REASONS_PROTO.read_text())}


STATUSES = documented_statuses()


def fails(reason: str, *, retry_after_seconds: float | None = None, says: str = "", **metadata: str) -> Fault:
    """Fails as a Kakeya service does."""
    says = says or f"scripted {reason}"

    def fault(context: grpc.ServicerContext) -> None:
        status = status_pb2.Status(code=STATUSES[reason].value[0], message=says)
        status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason, domain="kakeya", metadata=metadata))
        if retry_after_seconds is not None:
            delay = Duration()
            delay.FromNanoseconds(round(retry_after_seconds * 1e9))
            status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(STATUSES[reason], says)

    return fault


def fails_plainly(status: grpc.StatusCode, trailing: tuple[tuple[str, bytes], ...] = ()) -> Fault:
    """Fails as something that is no Kakeya does."""

    def fault(context: grpc.ServicerContext) -> None:
        context.set_trailing_metadata(trailing)
        context.abort(status, "plain")

    return fault


def passes(context: grpc.ServicerContext) -> None:
    """No fault: the next one is for a later call."""


def stalls(context: grpc.ServicerContext) -> None:
    """Answers nothing until the client has gone."""
    gone = threading.Event()
    if context.add_callback(gone.set):
        gone.wait()
    context.abort(grpc.StatusCode.CANCELLED, "nobody waits any more")


@dataclass
class ScriptedSession:
    history: list[int] = field(default_factory=list)
    eos_token_ids: tuple[int, ...] = ()
    is_ephemeral: bool = False
    running: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)  # of these, those that another call goes on with
    num_taken: int = 0
    last_append: tuple[int, list[int]] = (0, [])
    last_request: str = ""  # op_id that the latest Generate was asked for with
    last_generate: tuple[str, int] = ("", 0)  # the one that it was told, and the history length at its start

    @property
    def kv_live_bytes(self) -> int:
        return min(len(self.history), SINK + WINDOW) * BYTES_PER_TOKEN

    @property
    def retained(self) -> list[pb.TokenRange]:
        length = len(self.history)
        if length <= SINK + WINDOW:
            return [pb.TokenRange(start=0, end=length)]
        return [pb.TokenRange(start=0, end=SINK), pb.TokenRange(start=length - WINDOW, end=length)]


class ScriptedRuntime(runtime_pb2_grpc.RuntimeServiceServicer):
    """Serves until `stop`.

    Args:
        add_service: adds another service to the same port.

    Attributes:
        calls: the methods that were called, in order.
        requests: what came, by method, in order; of a Turn its parts, too, as the calls that they could have been.
        metadata: what came with it.
        num_cancelled: operations that ended because their client left.
        before, after: faults for the next calls of a method, run before it does anything, or after it has;
            after "done" comes after a Generate's result.
        hold_after: a Generate stalls after so many tokens, and calls `on_hold`; None for never.
        breaks_off: a Generate ends well but without its result.
        answers: tokens that the next Generates begin with, in place of counting.
        unusual_responses: what a Generate sends first.
        has_unusual_events: a Turn sends one first.
        boundaries: what it says of every session.
        tagged: each tag with what it was given by, of several the last counts; those of sessions that are gone do not.
        pages: of its list of sessions, by token.
        models: what it says that it serves.
        forks: it knows `fork_from`.
        closes_itself: it knows `ephemeral`.
        has_search: its Turns look for their sessions, and give places tags; else they pass over both.
        has_turn: it knows Turn, in which the faults of the calls that are its parts happen, too.
        is_old: neither appends nor descriptions of a session say what is retained.
        token_seconds: how long each token of an answer takes.
        stop_seconds: how long a cancelled operation stays in the way.
        idle_seconds: what it says of every session.
    """

    def __init__(
        self,
        credentials: grpc.ServerCredentials | None = None,
        *,
        add_service: Callable[[grpc.Server], None] = lambda server: None,
    ) -> None:
        self.calls: list[str] = []
        self.requests: dict[str, list[Any]] = defaultdict(list)
        self.metadata: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.before: dict[str, deque[Fault]] = defaultdict(deque)
        self.after: dict[str, deque[Fault]] = defaultdict(deque)
        self.sessions: dict[str, ScriptedSession] = {}
        self.by_request_id: dict[str, str] = {}
        self.tagged: list[tuple[bytes, pb.TagTurnRequest]] = []
        self.given_up: set[str] = set()
        self.objects: dict[str, bytes] = {}
        self.object_versions: Counter[str] = Counter()
        self.num_cancelled = 0
        self.hold_after: int | None = None
        self.on_hold: Callable[[], None] = lambda: None
        self.token_seconds = 0.0
        self.stop_seconds = 0.0
        self.idle_seconds = 0.5
        self.breaks_off = False
        self.answers: deque[list[int]] = deque()
        self.unusual_responses: list[pb.GenerateResponse] = []
        self.has_unusual_events = False
        self.boundaries: list[int] = []
        self.pages = {"": pb.ListSessionsResponse()}
        self.models = [model("counter", is_default=True)]
        self.forks = True
        self.closes_itself = True
        self.has_search = True
        self.has_turn = True
        self.is_old = False
        options = [("grpc.so_reuseport", 0)]
        self._server = grpc.server(ThreadPoolExecutor(max_workers=16), interceptors=[_Counter(self)], options=options)
        runtime_pb2_grpc.add_RuntimeServiceServicer_to_server(self, self._server)
        add_service(self._server)
        if credentials is None:
            self.port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            self.port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self.address = f"127.0.0.1:{self.port}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(0).wait()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Until the condition holds; fails after two minutes, which a busy machine may take to start a process."""
        deadline = time.monotonic() + 120.0
        while not condition():
            assert time.monotonic() < deadline, "the runtime never got there"
            time.sleep(0.01)

    def CreateSession(self, request: pb.CreateSessionRequest, context: grpc.ServicerContext) -> Any:
        self._come("CreateSession", request, context)
        if request.request_id in self.given_up:
            fails("INVALID_FIELD", field="request_id")(context)
        source = self._source(request, context)
        session_id, session = self._made(request, source)
        self._leave("CreateSession", context)
        return self._opened(session_id, session)

    def _made(self, request: pb.CreateSessionRequest, source: ScriptedSession) -> tuple[str, ScriptedSession]:
        session_id = self.by_request_id.setdefault(request.request_id, f"counter.{len(self.by_request_id)}")
        if session_id not in self.sessions:
            eos_token_ids = tuple(request.eos_token_ids) or source.eos_token_ids
            is_ephemeral = request.ephemeral and self.closes_itself
            self.sessions[session_id] = ScriptedSession(source.history.copy(), eos_token_ids, is_ephemeral)
            self._inherit(request.fork_from.session_id, session_id)
        return session_id, self.sessions[session_id]

    def _inherit(self, source_id: str, session_id: str) -> None:
        """A fork has the tags of its source up to where it begins, but for those of a head."""
        length = len(self.sessions[session_id].history)
        for tag, given in self.tags_of(source_id):
            if given.place.history_length <= length and given.place.kind != pb.PLACE_KIND_HEAD:
                self.tagged.append((tag, pb.TagTurnRequest(session_id=session_id, place=given.place)))

    def tags_of(self, session_id: str) -> list[tuple[bytes, pb.TagTurnRequest]]:
        """The tags of a session, the latest last."""
        return [each for each in self.tagged if each[1].session_id == session_id]

    def _opened(self, session_id: str, session: ScriptedSession) -> pb.CreateSessionResponse:
        return pb.CreateSessionResponse(
            session_id=session_id,
            model="counter",
            sink=SINK,
            window=WINDOW,
            reserved_bytes=32_768,
            exact=True,
            fingerprint=FINGERPRINT,
            vocab_size=VOCAB_SIZE,
            history_length=len(session.history),
            kv_live_bytes=session.kv_live_bytes,
            ephemeral=session.is_ephemeral,
        )

    def _source(self, request: pb.CreateSessionRequest, context: grpc.ServicerContext) -> ScriptedSession:
        """An empty one where there is none."""
        if not self.forks or not request.HasField("fork_from"):
            return ScriptedSession()
        source, boundary = self._session(request.fork_from.session_id, context), request.fork_from.boundary
        if source.running and boundary in (0, len(source.history)):
            fails("OPERATION_RUNNING")(context)
        if boundary > len(source.history):
            fails("BOUNDARY_NOT_REACHABLE", reachable=str(len(source.history)))(context)
        if boundary:
            return ScriptedSession(source.history[:boundary], source.eos_token_ids)
        return source

    def AppendTokens(self, request: pb.AppendTokensRequest, context: grpc.ServicerContext) -> Any:
        self._come("AppendTokens", request, context)
        session = self._session(request.session_id, context)
        if any(token_id >= VOCAB_SIZE for token_id in request.token_ids):
            fails("TOKEN_OUT_OF_VOCABULARY")(context)
        if session.running:
            fails("OPERATION_RUNNING")(context)
        token_ids = list(request.token_ids)
        is_repeated = session.last_append == (request.expected_history_length, token_ids)
        if request.HasField("expected_history_length") and len(session.history) != request.expected_history_length:
            if not is_repeated:
                fails("HISTORY_LENGTH_MISMATCH")(context)
        else:
            session.last_append = (len(session.history), token_ids)
            session.history += token_ids
        self._leave("AppendTokens", context)
        answer = self._appended(session)
        answer.logprobs.extend([] if is_repeated else _scored(request))
        return answer

    def _appended(self, session: ScriptedSession) -> pb.AppendTokensResponse:
        return pb.AppendTokensResponse(
            history_length=len(session.history),
            kv_live_bytes=session.kv_live_bytes,
            prefill_duration_seconds=0.25,
            evicted_token_count=7,
            retained=[] if self.is_old else session.retained,
        )

    def RewindSession(self, request: pb.RewindSessionRequest, context: grpc.ServicerContext) -> Any:
        self._come("RewindSession", request, context)
        session = self._session(request.session_id, context)
        length = len(session.history)
        if request.target_length > length:
            fails("BOUNDARY_NOT_REACHABLE", reachable=str(length))(context)
        if session.running:
            fails("OPERATION_RUNNING")(context)
        if length not in (request.target_length, request.expected_history_length):
            fails("HISTORY_LENGTH_MISMATCH")(context)
        beyond = [
            each for each in self.tags_of(request.session_id) if each[1].place.history_length > request.target_length
        ]
        is_latest = request.op_id in ("", session.last_generate[0])
        if (beyond and request.only_untagged) or not is_latest:
            fails("BOUNDARY_NOT_REACHABLE", reachable=str(length))(context)
        self.tagged = [each for each in self.tagged if each not in beyond]
        session.last_request, session.last_generate = "", ("", 0)
        del session.history[request.target_length :]
        self._leave("RewindSession", context)
        return pb.RewindSessionResponse(
            history_length=len(session.history), kv_live_bytes=session.kv_live_bytes, retained=session.retained
        )

    def Generate(self, request: pb.GenerateRequest, context: grpc.ServicerContext) -> Iterator[Any]:
        self._come("Generate", request, context)
        session = self._session(request.session_id, context)
        if request.op_id and request.op_id == session.last_request:
            context.send_initial_metadata((("kakeya-op-id", session.last_generate[0]),))
            yield from self._resumed(session, request, context)
            return
        if session.running:
            fails("OPERATION_RUNNING")(context)
        if not session.history:
            fails("EMPTY_HISTORY")(context)
        if request.max_tokens == 0:
            fails("INVALID_FIELD", field="max_tokens")(context)
        if request.HasField("expected_history_length") and len(session.history) != request.expected_history_length:
            fails("HISTORY_LENGTH_MISMATCH")(context)
        op_id = f"op-{len(self.requests['Generate'])}"
        context.send_initial_metadata((("kakeya-op-id", op_id),))
        session.last_request, session.last_generate = request.op_id, (op_id, len(session.history))
        yield from self._running(session, request, op_id, context)

    def _resumed(
        self, session: ScriptedSession, request: pb.GenerateRequest, context: grpc.ServicerContext
    ) -> Iterator[Any]:
        """Goes on with the latest Generate, which is stopped if it runs; what its client has seen stands."""
        op_id, start = session.last_generate
        if request.expected_history_length != start:
            fails("HISTORY_LENGTH_MISMATCH")(context)
        session.taken |= session.running
        session.num_taken += len(session.running)
        while session.running:
            time.sleep(0.001)
        session.taken.clear()
        seen = list(request.resume_token_ids)
        produced = session.history[start:]
        assert produced[: len(seen)] == seen[: len(produced)]
        session.history += seen[len(produced) :]
        for token_id in session.history[start + len(seen) :]:
            yield pb.GenerateResponse(token_id=token_id)
        request.max_tokens -= len(session.history) - start
        yield from self._running(session, request, op_id, context)

    def _running(
        self, session: ScriptedSession, request: pb.GenerateRequest, op_id: str, context: grpc.ServicerContext
    ) -> Iterator[Any]:
        session.running.add(op_id)
        gone = threading.Event()
        context.add_callback(gone.set)
        try:
            yield from self._tokens(session, request, op_id, gone, context)
        finally:
            if op_id in session.running:
                self.num_cancelled += 1
                time.sleep(self.stop_seconds)
                session.running.discard(op_id)

    def Turn(self, request: pb.TurnRequest, context: grpc.ServicerContext) -> Iterator[Any]:
        if not self.has_turn:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        self._come("Turn", request, context)
        if request.HasField("search") and self.has_search:
            found = self.FindSession(pb.FindSessionRequest(tags=request.search.tags), context)
            last_request = self.sessions[found.session_id].last_request if found.session_id else ""
            if not _goes_on(request, found, last_request):
                yield pb.TurnResponse(found=found)
                return
            yield from self._there(request, found, context)
        else:
            yield from self._there(request, None, context)

    def _there(
        self, request: pb.TurnRequest, found: pb.FindSessionResponse | None, context: grpc.ServicerContext
    ) -> Iterator[Any]:
        token_ids = [token_id for span in request.spans for token_id in span.token_ids]
        known = set(self.sessions)
        opened, session = self._turns_session(request, token_ids, context)
        is_new = opened.session_id not in known
        generate = pb.GenerateRequest()
        generate.CopyFrom(request.generate)
        generate.session_id = opened.session_id
        is_repeated = generate.op_id and generate.op_id == session.last_request
        if not is_repeated:
            name = generate.op_id if request.HasField("search") else f"turn-{len(self.requests['Turn'])}"
            session.last_generate = name, len(session.history) + len(token_ids)
        op_id, start = session.last_generate
        context.send_initial_metadata((("kakeya-op-id", op_id),))
        has_appended, num_taken = False, session.num_taken
        try:
            if self.has_unusual_events:
                yield pb.TurnResponse()
                yield pb.TurnResponse(session=opened, found=pb.FindSessionResponse())
            yield pb.TurnResponse(session=opened, found=found)
            append = pb.AppendTokensRequest(session_id=opened.session_id, token_ids=token_ids)
            self._come("AppendTokens", append, context)
            if not is_repeated:
                session.last_request = generate.op_id
                session.history += token_ids
            if self.has_search:
                place = pb.HistoryPlace(kind=pb.PLACE_KIND_ANSWER_START, history_length=start)
                tagged = pb.TagTurnRequest(session_id=opened.session_id, place=place, op_id=op_id)
                self.tagged += [(tag, tagged) for tag in request.start_tags]
            self._leave("AppendTokens", context)
            has_appended = True
            yield pb.TurnResponse(appended=self._appended(session))
            generate.expected_history_length = start
            self._come("Generate", generate, context)
            if is_repeated:
                responses = self._resumed(session, generate, context)
            else:
                responses = self._running(session, generate, op_id, context)
            for response in responses:
                yield pb.TurnResponse(generated=response)
        finally:
            if (is_new and not has_appended) or (session.is_ephemeral and session.num_taken == num_taken):
                self.sessions.pop(opened.session_id, None)

    def _turns_session(
        self, request: pb.TurnRequest, token_ids: list[int], context: grpc.ServicerContext
    ) -> tuple[pb.CreateSessionResponse, ScriptedSession]:
        """Checks all parts first."""
        if any(token_id >= VOCAB_SIZE for token_id in token_ids):
            fails("TOKEN_OUT_OF_VOCABULARY", part="append")(context)
        if request.generate.max_tokens == 0:
            fails("INVALID_FIELD", field="max_tokens", part="generate")(context)
        if request.HasField("create"):
            opened = self.CreateSession(request.create, context)
            return opened, self.sessions[opened.session_id]
        session = self._session(request.session.session_id, context)
        if request.session.HasField("boundary"):
            return self._at(request.session, session, request.generate.op_id, context)
        if request.generate.op_id == session.last_request:
            while session.running:  # its client has gone
                time.sleep(0.001)
        elif session.running:
            fails("OPERATION_RUNNING")(context)
        elif request.session.HasField("expected_history_length") and (
            len(session.history) != request.session.expected_history_length
        ):
            fails("HISTORY_LENGTH_MISMATCH")(context)
        if not session.history and not token_ids:
            fails("EMPTY_HISTORY")(context)
        return self._opened(request.session.session_id, session), session

    def _at(
        self, place: pb.TurnPlace, session: ScriptedSession, op_id: str, context: grpc.ServicerContext
    ) -> tuple[pb.CreateSessionResponse, ScriptedSession]:
        """The session itself, if it is idle there; else a fork."""
        is_idle_end = len(session.history) == place.boundary and not session.running
        if (is_idle_end and place.request_id not in self.by_request_id) or op_id == session.last_request:
            return self._opened(place.session_id, session), session
        if place.boundary > len(session.history):
            fails("BOUNDARY_NOT_REACHABLE", reachable=str(len(session.history)), part="session")(context)
        request = pb.CreateSessionRequest(request_id=place.request_id)
        request.fork_from.CopyFrom(pb.ForkPoint(session_id=place.session_id, boundary=place.boundary))
        fork_id, fork = self._made(request, ScriptedSession(session.history[: place.boundary], session.eos_token_ids))
        return self._opened(fork_id, fork), fork

    def CloseSession(self, request: pb.CloseSessionRequest, context: grpc.ServicerContext) -> Any:
        self._come("CloseSession", request, context)
        if request.request_id:
            return self._give_up(request.request_id)
        session = self._session(request.session_id, context)
        del self.sessions[request.session_id]
        self._leave("CloseSession", context)
        return pb.CloseSessionResponse(final_history_length=len(session.history))

    def _give_up(self, request_id: str) -> pb.CloseSessionResponse:
        self.given_up.add(request_id)
        session = self.sessions.pop(self.by_request_id.get(request_id, ""), ScriptedSession())
        return pb.CloseSessionResponse(final_history_length=len(session.history))

    def ParkSession(self, request: pb.ParkSessionRequest, context: grpc.ServicerContext) -> Any:
        self._come("ParkSession", request, context)
        session = self._session(request.session_id, context)
        self._leave("ParkSession", context)
        return pb.ParkSessionResponse(history_length=len(session.history), freed_bytes=32_768)

    def GetSessionInfo(self, request: pb.GetSessionInfoRequest, context: grpc.ServicerContext) -> Any:
        self._come("GetSessionInfo", request, context)
        session = self._session(request.session_id, context)
        return pb.GetSessionInfoResponse(
            history_length=len(session.history),
            kv_live_bytes=session.kv_live_bytes,
            cache_invariant_inv1_violations=1,
            cache_invariant_inv2_violations=2,
            idle_seconds=self.idle_seconds,
            state=pb.SESSION_STATE_OPEN,
            reserved_bytes=32_768,
            retained=[] if self.is_old else session.retained,
            exact=True,
            fingerprint=FINGERPRINT,
            model="counter",
            worker="scripted",
            epoch=3,
            boundaries=self.boundaries,
            inexact_resume=not self.is_old,
            drafted_token_count=0 if self.is_old else 9,
            accepted_token_count=0 if self.is_old else 4,
        )

    def ListSessions(self, request: pb.ListSessionsRequest, context: grpc.ServicerContext) -> Any:
        self._come("ListSessions", request, context)
        return self.pages[request.page_token]

    def ListModels(self, request: pb.ListModelsRequest, context: grpc.ServicerContext) -> Any:
        self._come("ListModels", request, context)
        return pb.ListModelsResponse(models=self.models)

    def TagTurn(self, request: pb.TagTurnRequest, context: grpc.ServicerContext) -> Any:
        self._come("TagTurn", request, context)
        session = self._session(request.session_id, context)
        is_latest = request.op_id == session.last_generate[0] or not request.op_id
        if request.place.history_length > len(session.history) or not is_latest:
            fails("BOUNDARY_NOT_REACHABLE", reachable=str(len(session.history)))(context)
        if request.place.kind == pb.PLACE_KIND_ANSWER_END and session.running:
            fails("OPERATION_RUNNING")(context)
        self.tagged += [(tag, request) for tag in request.tags]
        self._leave("TagTurn", context)
        return pb.TagTurnResponse()

    def FindSession(self, request: pb.FindSessionRequest, context: grpc.ServicerContext) -> Any:
        self._come("FindSession", request, context)
        self._leave("FindSession", context)
        if request.session_id:
            self._session(request.session_id, context)
        for number, tag in enumerate(request.tags):
            for known, there in reversed(self.tagged):
                is_wanted = request.session_id in ("", there.session_id)
                if known == tag and there.session_id in self.sessions and is_wanted:
                    return self._found(number, there)
        return pb.FindSessionResponse()

    def StoreObject(self, request: pb.StoreObjectRequest, context: grpc.ServicerContext) -> Any:
        self._come("StoreObject", request, context)
        self._store(request.id, request.data)
        self._leave("StoreObject", context)
        return pb.StoreObjectResponse()

    def FetchObject(self, request: pb.FetchObjectRequest, context: grpc.ServicerContext) -> Any:
        self._come("FetchObject", request, context)
        if request.id not in self.objects:
            fails("OBJECT_NOT_FOUND")(context)
        self._leave("FetchObject", context)
        return pb.FetchObjectResponse(data=self.objects[request.id], version=self.object_versions[request.id])

    def UpdateObject(self, request: pb.UpdateObjectRequest, context: grpc.ServicerContext) -> Any:
        self._come("UpdateObject", request, context)
        if request.id not in self.objects:
            fails("OBJECT_NOT_FOUND")(context)
        if self.object_versions[request.id] != request.version:
            fails("OBJECT_CHANGED")(context)
        data = (self.objects[request.id] if request.appends else b"") + request.data
        if len(data) > MAX_OBJECT_BYTES:
            fails("INVALID_FIELD", field="data")(context)
        version = self._store(request.id, data)
        self._leave("UpdateObject", context)
        return pb.UpdateObjectResponse(version=version)

    def _store(self, object_id: str, data: bytes) -> int:
        self.objects[object_id] = data
        self.object_versions[object_id] += 1
        return self.object_versions[object_id]

    def DeleteObject(self, request: pb.DeleteObjectRequest, context: grpc.ServicerContext) -> Any:
        self._come("DeleteObject", request, context)
        if self.objects.pop(request.id, None) is None:
            fails("OBJECT_NOT_FOUND")(context)
        self._leave("DeleteObject", context)
        return pb.DeleteObjectResponse()

    def _found(self, number: int, there: pb.TagTurnRequest) -> pb.FindSessionResponse:
        session, length = self.sessions[there.session_id], there.place.history_length
        return pb.FindSessionResponse(
            session_id=there.session_id,
            place=there.place,
            tag_index=number,
            is_idle_end=length == len(session.history) and not session.running,
            is_last=all(given.place.history_length <= length for _, given in self.tags_of(there.session_id)),
            history_length=len(session.history),
        )

    def _tokens(
        self,
        session: ScriptedSession,
        request: pb.GenerateRequest,
        op_id: str,
        gone: threading.Event,
        context: grpc.ServicerContext,
    ) -> Iterator[pb.GenerateResponse]:
        yield from self.unusual_responses
        if len(session.history) > SINK + WINDOW:
            dropped = len(session.history) - SINK - WINDOW
            truncated = pb.HistoryTruncated(dropped_token_count=dropped, retained=session.retained)
            yield pb.GenerateResponse(truncated=truncated)
        answer = deque(self.answers.popleft() if self.answers else [])
        hold_after = self.hold_after
        num_tokens, stop_reason = 0, pb.STOP_REASON_MAX_TOKENS
        while num_tokens < request.max_tokens and stop_reason == pb.STOP_REASON_MAX_TOKENS:
            if num_tokens == hold_after:
                self.on_hold()
                while not (gone.wait(0.01) or op_id in session.taken):
                    pass
            if op_id in session.taken:
                fails("OPERATION_STOPPED")(context)
            if gone.wait(self.token_seconds):
                return
            session.history.append(answer.popleft() if answer else (session.history[-1] + 1) % VOCAB_SIZE)
            num_tokens += 1
            if session.history[-1] in session.eos_token_ids:
                stop_reason = pb.STOP_REASON_EOS
            elif num_tokens >= request.min_tokens and _stops(request, session.history[-num_tokens:]):
                stop_reason = pb.STOP_REASON_STOP_SEQUENCE
            yield pb.GenerateResponse(token_id=session.history[-1], detail=_detail(request))
        self._leave("Generate", context)
        session.running.discard(op_id)
        if self.breaks_off:
            return
        if session.is_ephemeral:
            del self.sessions[request.session_id]
        yield pb.GenerateResponse(
            done=pb.GenerateDone(
                stop_reason=stop_reason,
                generated_token_count=len(session.history) - session.last_generate[1],
                prefill_duration_seconds=0.25,
                total_duration_seconds=0.5,
                seed=request.seed,
                op_id=op_id,
                evicted_token_count=5,
                history_length=len(session.history),
                kv_live_bytes=session.kv_live_bytes,
                retained=session.retained,
            )
        )
        self._leave("done", context)

    def _come(self, method: str, request: Any, context: grpc.ServicerContext) -> None:
        self.requests[method].append(request)
        self.metadata[method].append(dict(context.invocation_metadata()))
        if self.before[method]:
            self.before[method].popleft()(context)

    def _leave(self, method: str, context: grpc.ServicerContext) -> None:
        if self.after[method]:
            self.after[method].popleft()(context)

    def _session(self, session_id: str, context: grpc.ServicerContext) -> ScriptedSession:
        if session_id not in self.sessions:
            fails("SESSION_NOT_FOUND")(context)
        return self.sessions[session_id]


class _Counter(grpc.ServerInterceptor):
    def __init__(self, runtime: ScriptedRuntime) -> None:
        self._runtime = runtime

    def intercept_service(self, continuation: Callable[[Any], Any], handler_call_details: Any) -> Any:
        self._runtime.calls.append(handler_call_details.method.rpartition("/")[2])
        return continuation(handler_call_details)


def _goes_on(request: pb.TurnRequest, found: pb.FindSessionResponse, last_request: str) -> bool:
    """Whether a Turn is where its search came to; its request says it then as if there had been none."""
    if not found.session_id:
        return request.HasField("create")
    skipped = {each.tag_index: each.skipped_token_count for each in request.search.expected}
    length = found.place.history_length
    is_its_own = request.generate.op_id == last_request
    takes_back = found.is_last and not found.is_idle_end and found.history_length > length and not is_its_own
    if found.tag_index not in skipped or takes_back:
        return False
    token_ids = [token_id for span in request.spans for token_id in span.token_ids]
    del request.spans[:]
    request.spans.add(token_ids=token_ids[skipped[found.tag_index] :])
    place = pb.TurnPlace(session_id=found.session_id, boundary=length, request_id=request.search.request_id)
    request.session.CopyFrom(place)
    return True


def model(name: str, *, is_default: bool = False) -> pb.Model:
    return pb.Model(
        name=name,
        lane_token_count=SINK + WINDOW,
        vocab_size=VOCAB_SIZE,
        is_default=is_default,
        sink=SINK,
        window=WINDOW,
        kv_bytes_per_token=BYTES_PER_TOKEN,
        features=["turn-search"],
    )


def _stops(request: pb.GenerateRequest, token_ids: list[int]) -> bool:
    sequences = [list(sequence.token_ids) for sequence in request.stop_token_sequences]
    return any(token_ids[-len(sequence) :] == sequence for sequence in sequences)


def _scored(request: pb.AppendTokensRequest) -> list[pb.TokenDetail]:
    """Of all tokens but the first of the history."""
    num_scored = len(request.token_ids) - (request.expected_history_length == 0)
    detail = _detail(request)
    return [] if detail is None else [detail] * max(0, num_scored)


def _detail(request: pb.GenerateRequest | pb.AppendTokensRequest) -> pb.TokenDetail | None:
    """The choice at -0.5, and ids from 7 down, each less likely by one."""
    if not request.HasField("logprobs"):
        return None
    top = [pb.TokenLogprob(token_id=7 - rank, logprob=-1.0 - rank) for rank in range(request.logprobs)]
    return pb.TokenDetail(logprob=-0.5, top_logprobs=top)
