"""A worker without a model: the VerifierService over integers, on a real socket, that can stall, fail and vanish."""

import asyncio
import itertools
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import grpc

from kakeya_router.contract.generates import Done, GenerateRequest, Sampling, Token
from kakeya_router.store.session_record import Epoch, Incarnation, PoolName, SessionId, SessionRecord, State, WorkerId
from kakeya_router.workers.worker_client import RunningCall, WorkerClient
from kakeya_shared.contract.features import (
    ANSWER_STREAM,
    APPEND_LOGPROBS,
    CONTRACT_VERSION,
    GRAMMAR,
    MASKED_ENDS,
    REASONING,
    REPETITION_PENALTY,
)
from kakeya_shared.contract.history_digest import EMPTY_HISTORY, extended_digest
from kakeya_shared.errors.tree import (
    BoundaryNotReachable,
    HistoryFull,
    HistoryLengthMismatch,
    InvalidField,
    KakeyaError,
    NoCapacity,
    OperationRunning,
    OperationStopped,
    SessionClosed,
    SessionNotFound,
    SnapshotRefused,
    SnapshotStoreUnavailable,
    StaleEpoch,
)
from kakeya_shared.rpc import rpc_boundary
from kakeya_shared.rpc.server import RpcServer
from kakeya_shared.settings.service import RpcServerSettings
from kakeya_stubs.worker.v1 import registry_pb2, verifier_pb2_grpc
from kakeya_stubs.worker.v1 import verifier_pb2 as pb

SINK, WINDOW, NUM_SLOTS = 4, 16, 24
BYTES_PER_TOKEN = 100
LANE_BYTES = NUM_SLOTS * BYTES_PER_TOKEN
VOCAB_SIZE = 1000
EOS = 7
EVERY_FEATURE = (APPEND_LOGPROBS, GRAMMAR, MASKED_ENDS, REASONING, REPETITION_PENALTY, ANSWER_STREAM)
CREDITS = 64
FINGERPRINT = "f" * 64
TOKENIZER_DIGEST = "d" * 64
MODEL_DIGEST = "e" * 64

_incarnations = itertools.count(1)

GENERATE = "/kakeya.worker.v1.VerifierService/Generate"
Serve = Callable[[pb.GenerateRequest, "tuple[AnswerStream, int]"], AsyncIterator[pb.GenerateResponse]]


@dataclass
class SnapshotFiles:
    """A snapshot store of several workers: for each name the retention, where it starts, and the tokens since; and the
    fingerprint of who wrote it, where that is not the reader's.
    """

    identity: str = "store"
    contents: dict[str, tuple[int, int, bool, int, list[int]]] = field(default_factory=dict)
    fingerprints: dict[str, str] = field(default_factory=dict)


@dataclass
class Lane:
    epoch: int
    sink: int
    window: int
    refuses: bool
    tenant: str = ""
    token_ids: list[int] = field(default_factory=list)
    busy: bool = False
    end: KakeyaError | None = None
    num_acknowledged: int = 0  # tokens of the running Generate
    operation_number: int = 0
    num_rewinds: int = 0
    digests: ClassVar[bool] = True  # workers of today; those before knew none

    @property
    def room(self) -> int:
        """Tokens that fit before one is forgotten."""
        return max(0, self.sink + self.window - len(self.token_ids))

    @property
    def retained(self) -> list[tuple[int, int]]:
        length = len(self.token_ids)
        if length <= self.sink + self.window:
            return [(0, length)] if length else []
        window = (length - self.window, length)
        return [(0, self.sink), window] if self.sink else [window]

    def num_evicted_since(self, length: int) -> int:
        num_kept = self.sink + self.window
        return max(0, len(self.token_ids) - num_kept) - max(0, length - num_kept)

    def state(self) -> pb.LaneState:
        return pb.LaneState(
            history_length=len(self.token_ids),
            kv_live_bytes=min(len(self.token_ids), self.sink + self.window) * BYTES_PER_TOKEN,
            retained=[pb.TokenRange(start=start, end=end) for start, end in self.retained],
            num_rewinds=self.num_rewinds,
            history_digest=self.digest if self.digests else None,
        )

    @property
    def digest(self) -> int:
        return extended_digest(EMPTY_HISTORY, self.token_ids)

    def check(self, request: pb.AppendRequest | pb.GenerateRequest | pb.RewindRequest | pb.ForkSource) -> None:
        """Raises HistoryLengthMismatch."""
        is_unlike = self.digests and request.HasField("history_digest") and request.history_digest != self.digest
        if len(self.token_ids) != request.history_length or is_unlike:
            raise HistoryLengthMismatch("another history")


@dataclass
class AnswerStream:
    """What goes out of several answers together, and the lanes and tasks of these by number."""

    responses: pb.StreamAnswersResponse = field(default_factory=pb.StreamAnswersResponse)
    lanes: dict[int, Lane] = field(default_factory=dict)
    tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    any: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, answer: int, token_id: int, detail: pb.TokenDetail | None) -> None:
        if detail is not None:
            self.responses.details[len(self.responses.answers)].CopyFrom(detail)
        self.responses.answers.append(answer)
        self.responses.token_ids.append(token_id)
        self.any.set()

    async def next(self) -> pb.StreamAnswersResponse:
        await self.any.wait()
        self.any.clear()
        await asyncio.sleep(0)  # the others of the step
        taken, self.responses = self.responses, pb.StreamAnswersResponse()
        return taken

    async def hear(self, requests: AsyncIterator[pb.StreamAnswersRequest], serve: Serve) -> None:
        async for request in requests:
            if request.HasField("begun"):
                number = request.begun.answer
                self.tasks[number] = asyncio.create_task(self.answer(request.begun, serve))
            for said in request.acknowledged:
                if (lane := self.lanes.get(said.answer)) is not None:
                    lane.num_acknowledged = max(lane.num_acknowledged, said.num_tokens)
            for number in request.cancelled:
                self.tasks[number].cancel()

    async def answer(self, begun: pb.BegunAnswer, serve: Serve) -> None:
        ended = pb.EndedAnswer(answer=begun.answer)

        class Told:
            async def write(self, response: pb.GenerateResponse) -> None:
                ended.done.CopyFrom(response.done)

            async def abort(self, code: object, details: str, trailing: Any) -> None:
                ((_, ended.failed),) = trailing
                raise grpc.aio.AbortError

        def generate(request: pb.GenerateRequest, context: object) -> AsyncIterator[pb.GenerateResponse]:
            return serve(request, (self, begun.answer))

        with suppress(grpc.aio.AbortError):
            await rpc_boundary.carry(GENERATE, tuple(begun.metadata.items()), generate, begun.request, Told())
        self.responses.ended.append(ended)
        self.any.set()


class FakeWorker(verifier_pb2_grpc.VerifierServiceServicer):
    """Use as a context manager.

    Attributes:
        lanes: by session id.
        opening: session ids of all calls of OpenSession.
        meant: the incarnations that these say they are for.
        drafting: what opened lanes are to draft with, by session id.
        generating: what was asked of Generate.
        streamed: of each of these, whether it came in a stream.
        acknowledging: what came in the calls of Acknowledge.
        streams: of answers, that stand.
        checking: what came in the calls of CheckGrammar.
        sink, window: of a session that does not ask; together they fill the lane.
        flowing: clear it and no step takes place.
        pause_in: so many tokens are generated before it clears `flowing` by itself; 0: it does not. An answer stands
            there, however slow its reader is.
        failures: by method name, what the next calls raise instead of doing anything.
        late: of the next calls of Append and Generate, what comes about before they do.
        calls: how often each method was called.
        forgets_done: end streams without `done`.
        forgets_generated: say in Stop where the lane ends, and no token.
        ending_seconds: from `done` to the end of a stream.
        num_cut_short: streams that were cancelled after their `done`.
        eos_after: length of a history whose next generated token is EOS.
        rss_bytes: what heartbeats say of its memory; 0, as of a worker that cannot tell.
        forks: it knows `fork_from`.
        closes: it knows `closes_session`.
        files: its snapshot store; None: it has none.
        writing: clear it and no snapshot is written.
        reading: clear it and no lane is read to its end.
        draining: what heartbeats say of that.
        leases: the Redis in which its lease is, for `lapse`.
        prefill_tokens_per_second, snapshot_free_bytes: what it says of that.
        contract_version, features: what it says of that when it joins.
        first_token_id: its tokens go round in the 800 from this one on.
        tunnels: routers that it has tunnels to, where it is reached through some.
    """

    def __init__(
        self,
        worker_id: str = "worker-a",
        *,
        num_lanes: int = 4,
        pool: str = "tiny",
        model: str = "Tiny",
        window: int = WINDOW,
        fingerprint: str = FINGERPRINT,
        tokenizer_digest: str = TOKENIZER_DIGEST,
        model_digest: str = MODEL_DIGEST,
        settings: RpcServerSettings | None = None,
        files: "SnapshotFiles | None" = None,
        features: Sequence[str] = (ANSWER_STREAM,),
        prefill_tokens_per_second: float = 0.0,
        snapshot_free_bytes: int = 0,
        socket: Path | None = None,
    ) -> None:
        self.worker_id = worker_id
        number = next(_incarnations)
        self.incarnation = f"incarnation-{number}" if socket is None else f"{number:032x}"
        self.tunnels: Sequence[str] = ()
        self.num_lanes = num_lanes
        self.pool = pool
        self.model = model
        self.sink, self.window = SINK, window
        self.fingerprint = fingerprint
        self.tokenizer_digest = tokenizer_digest
        self.model_digest = model_digest
        self.lanes: dict[str, Lane] = {}
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.pause_in = 0
        self.failures: defaultdict[str, list[BaseException]] = defaultdict(list)
        self.late: list[asyncio.Event] = []
        self.calls: defaultdict[str, int] = defaultdict(int)
        self.eos_after = -1
        self.forgets_done = False
        self.forgets_generated = False
        self.ending_seconds = 0.0
        self.num_cut_short = 0
        self.opening: list[str] = []
        self.meant: list[str] = []
        self.drafting: dict[str, str] = {}
        self.generating: list[pb.GenerateRequest] = []
        self.streamed: list[bool] = []
        self.acknowledging: list[pb.AcknowledgeRequest] = []
        self.streams: list[AnswerStream] = []
        self.checking: list[pb.Grammar] = []
        self.prefill_seconds = 0.25
        self.rss_bytes = 0
        self.numbers = itertools.count(1)
        self.forks = self.closes = True
        self.files = files
        self.writing = asyncio.Event()
        self.writing.set()
        self.reading = asyncio.Event()
        self.reading.set()
        self.draining = False
        self.prefill_tokens_per_second = prefill_tokens_per_second
        self.snapshot_free_bytes = snapshot_free_bytes
        self.contract_version = CONTRACT_VERSION
        self.features: Sequence[str] = features
        self.first_token_id = 100
        self.server = RpcServer(
            socket or "127.0.0.1:0", ("kakeya.worker.v1.VerifierService",), settings=settings, grace_seconds=0
        )
        verifier_pb2_grpc.add_VerifierServiceServicer_to_server(self, self.server.grpc_server)
        self.leases: Any = None
        self._silent = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.server.__aenter__()
        self.address = self.server.address if self.server.socket is None else ""
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._beating is not None:
            self._beating.cancel()
        await self.vanish()

    async def vanish(self) -> None:
        """The process dies: connections break, nothing is said to anybody."""
        await self.server.grpc_server.stop(0)

    # The registry's side

    def join_request(self) -> registry_pb2.JoinRequest:
        return registry_pb2.JoinRequest(
            contract_version=self.contract_version,
            features=self.features,
            worker_id=self.worker_id,
            incarnation=self.incarnation,
            pool=self.pool,
            model=self.model,
            address=self.address,
            tunnel=not self.address,
            backend="fake",
            dtype="float32",
            slab_bytes=self.num_lanes * LANE_BYTES,
            lane_bytes=LANE_BYTES,
            num_lanes=self.num_lanes,
            sink=self.sink,
            window=self.window,
            kv_bytes_per_token=BYTES_PER_TOKEN,
            vocab_size=VOCAB_SIZE,
            num_threads=1,
            weights="int8",
            fingerprint=self.fingerprint,
            exact=True,
            tokenizer_digest=self.tokenizer_digest,
            model_digest=self.model_digest,
            snapshot_store="" if self.files is None else self.files.identity,
            prefill_tokens_per_second=self.prefill_tokens_per_second,
            snapshot_free_bytes=self.snapshot_free_bytes,
        )

    def heartbeat_request(self, *, complete: bool = True) -> registry_pb2.HeartbeatRequest:
        states = {session_id: (lane.epoch, lane.state()) for session_id, lane in self.lanes.items()}
        return registry_pb2.HeartbeatRequest(
            pool=self.pool,
            worker_id=self.worker_id,
            incarnation=self.incarnation,
            kv_live_bytes=sum(state.kv_live_bytes for _, state in states.values()),
            num_lanes_in_use=len(states),
            lanes=[
                registry_pb2.LaneReport(
                    session_id=session_id,
                    epoch=epoch,
                    history_length=state.history_length,
                    kv_live_bytes=state.kv_live_bytes,
                    retained=[registry_pb2.LaneReport.Range(start=r.start, end=r.end) for r in state.retained],
                    num_rewinds=state.num_rewinds,
                    lane=number,
                )
                for number, (session_id, (epoch, state)) in enumerate(states.items())
            ],
            complete=complete,
            rss_bytes=self.rss_bytes,
            draining=self.draining,
            number=next(self.numbers),
            tunnels=self.tunnels,
        )

    def leave_request(self) -> registry_pb2.LeaveRequest:
        return registry_pb2.LeaveRequest(pool=self.pool, worker_id=self.worker_id, incarnation=self.incarnation)

    def keep_beating(self, registry: Any, every_seconds: float = 0.1) -> None:
        """Incomplete heartbeats to a stub until `stop_beating`; errors of a router that is away are endured."""
        self._silent = silent = asyncio.Event()

        async def beat() -> None:
            while not silent.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(silent.wait(), every_seconds)
                    return
                with suppress(grpc.aio.AioRpcError):
                    await registry.Heartbeat(self.heartbeat_request(complete=False))

        self._beating = asyncio.create_task(beat())

    def stop_beating(self) -> None:
        """No further heartbeat; one that is on its way arrives."""
        self._silent.set()

    async def lapse(self) -> None:
        """Has its lease lapse, as where no heartbeat came for so long."""
        self.stop_beating()
        if self._beating is not None:
            await self._beating  # a late heartbeat would renew it
        await self.leases.zadd(f"kakeya:{{{self.pool}}}:workers", {self.worker_id: 1}, xx=True)

    # VerifierService

    def _enter(self, method: str) -> None:
        self.calls[method] += 1
        if self.failures[method]:
            raise self.failures[method].pop(0)

    def _lane(self, session_id: str, epoch: int) -> Lane:
        lane = self.lanes.get(session_id)
        if lane is None:
            raise SessionNotFound("no lane")
        if lane.epoch != epoch:
            raise StaleEpoch("another epoch")
        return lane

    def _lane_for(self, request: pb.AppendRequest | pb.GenerateRequest | pb.StopRequest | pb.RewindRequest) -> Lane:
        lane = self._lane(request.session_id, request.epoch)
        if request.operation_number < lane.operation_number:
            raise StaleEpoch("a later operation")
        lane.operation_number = request.operation_number
        return lane

    async def _begin(self, request: pb.AppendRequest | pb.GenerateRequest) -> Lane:
        if self.late:
            await self.late.pop(0).wait()
        lane = self._lane_for(request)
        if lane.busy:
            raise OperationRunning("busy")
        lane.check(request)
        return lane

    async def _step(self, lane: Lane) -> None:
        while not self.flowing.is_set() and lane.end is None:
            await asyncio.sleep(0.002)
        await asyncio.sleep(0)
        if lane.end is not None:
            raise lane.end

    async def OpenSession(self, request: pb.OpenSessionRequest, context: object) -> pb.OpenSessionResponse:
        self.opening.append(request.session_id)
        self.meant.append(request.incarnation)
        self._enter("OpenSession")
        self.drafting[request.session_id] = request.speculation
        while not self.flowing.is_set():
            await asyncio.sleep(0.002)
        source = self._source(request.fork_from) if self.forks and request.HasField("fork_from") else None
        left = self.lanes.get(request.session_id)
        if left is not None and left.epoch < request.epoch:
            left.end = SessionClosed("a newer lease")
            del self.lanes[request.session_id]
        elif left is not None:
            lane = self._lane(request.session_id, request.epoch)
            return pb.OpenSessionResponse(lane=lane.state(), sink=lane.sink, window=lane.window)
        if len(self.lanes) >= self.num_lanes:
            raise NoCapacity("no lane")
        if request.snapshots:
            lane = self.lanes[request.session_id] = self._restored(request)
            return pb.OpenSessionResponse(lane=lane.state(), sink=lane.sink, window=lane.window)
        if source is not None:
            assert not {"sink", "window", "pin", "refuse_overflow"} & {field.name for field, _ in request.ListFields()}
            token_ids = source.token_ids.copy()
            lane = replace(
                source,
                epoch=request.epoch,
                tenant=request.tenant,
                token_ids=token_ids,
                operation_number=0,
                num_rewinds=0,
            )
            self.lanes[request.session_id] = lane
            return pb.OpenSessionResponse(lane=lane.state(), sink=lane.sink, window=lane.window)
        sink, window = self._geometry(request)
        lane = self.lanes[request.session_id] = Lane(
            request.epoch, sink, window, request.refuse_overflow, request.tenant
        )
        return pb.OpenSessionResponse(lane=lane.state(), sink=sink, window=window)

    def _restored(self, request: pb.OpenSessionRequest) -> Lane:
        token_ids: list[int] = []
        for name in request.snapshots:
            if self.files is None or name not in self.files.contents:
                raise SnapshotRefused("no such file")
            sink, window, refuses, start, since = self.files.contents[name]
            self._check_fingerprint(self.files.fingerprints.get(name, self.fingerprint), inexact=request.inexact)
            if start != len(token_ids):
                raise SnapshotRefused("does not follow")
            token_ids += since
        return Lane(request.epoch, sink, window, refuses, request.tenant, token_ids)

    def _check_fingerprint(self, fingerprint: str, *, inexact: bool) -> None:
        if fingerprint != self.fingerprint and not inexact:
            raise SnapshotRefused("another fingerprint")

    async def WriteSnapshot(self, request: pb.WriteSnapshotRequest, context: object) -> pb.WriteSnapshotResponse:
        self._enter("WriteSnapshot")
        lane = self._lane(request.session_id, request.epoch)
        if self.files is None:
            raise SnapshotStoreUnavailable("no store")
        length = len(lane.token_ids)
        name = f"{request.prefix}-{length}.safetensors"
        since = lane.token_ids[request.start :]
        await self.writing.wait()
        self.files.contents[name] = (lane.sink, lane.window, lane.refuses, request.start, since)
        self.files.fingerprints[name] = self.fingerprint
        digest = lane.state().history_digest if lane.digests else None
        return pb.WriteSnapshotResponse(name=name, length=length, size_bytes=100 * len(since), history_digest=digest)

    async def ReadLane(self, request: pb.ReadLaneRequest, context: object) -> AsyncIterator[pb.ReadLaneResponse]:
        self._enter("ReadLane")
        lane = self._lane(request.session_id, request.epoch)
        content = json.dumps([self.fingerprint, lane.sink, lane.window, lane.refuses, lane.token_ids]).encode()
        for byte in range(len(content)):
            yield pb.ReadLaneResponse(content=content[byte : byte + 1])
            await self.reading.wait()

    async def WriteLane(self, requests: AsyncIterator[pb.WriteLaneRequest], context: object) -> pb.WriteLaneResponse:
        first = await anext(requests)
        self._enter("WriteLane")
        self.drafting[first.session_id] = first.speculation
        if len(self.lanes) >= self.num_lanes:
            raise NoCapacity("no lane")
        content = b"".join([request.content async for request in requests])
        fingerprint, sink, window, refuses, token_ids = json.loads(content)
        self._check_fingerprint(fingerprint, inexact=first.inexact)
        lane = self.lanes[first.session_id] = Lane(first.epoch, sink, window, refuses, first.tenant, token_ids)
        return pb.WriteLaneResponse(lane=lane.state())

    async def DeleteSnapshots(self, request: pb.DeleteSnapshotsRequest, context: object) -> pb.DeleteSnapshotsResponse:
        self._enter("DeleteSnapshots")
        assert self.files is not None
        for name in request.names:
            self.files.contents.pop(name, None)
        return pb.DeleteSnapshotsResponse()

    def _source(self, source: pb.ForkSource) -> Lane:
        lane = self._lane(source.session_id, source.epoch)
        if lane.busy:
            raise OperationRunning("busy")
        lane.check(source)
        return lane

    def _geometry(self, request: pb.OpenSessionRequest) -> tuple[int, int]:
        num_kept = self.sink + self.window
        sink = max(request.sink if request.HasField("sink") else self.sink, request.pin)
        window = request.window if request.HasField("window") else num_kept - sink
        if window < 1 or sink + window > num_kept:
            raise InvalidField("the lane cannot hold it", metadata={"field": "pin" if request.pin else "window"})
        return sink, window

    async def Append(self, request: pb.AppendRequest, context: object) -> pb.AppendResponse:
        self._enter("Append")
        lane = await self._begin(request)
        if lane.refuses and len(request.token_ids) > lane.room:
            raise HistoryFull("does not fit", metadata={"room": str(lane.room)})
        lane.busy = True
        try:
            for token_id in request.token_ids:
                await self._step(lane)
                lane.token_ids.append(token_id)
        finally:
            lane.busy = False
        evicted = lane.num_evicted_since(request.history_length)
        scored = request.token_ids[not request.history_length :] if request.HasField("logprobs") else ()
        return pb.AppendResponse(
            lane=lane.state(),
            prefill_duration_seconds=self.prefill_seconds,
            evicted_token_count=evicted,
            logprobs=filter(None, (_detail(request, token_id) for token_id in scored)),
        )

    def Generate(self, request: pb.GenerateRequest, context: object) -> AsyncIterator[pb.GenerateResponse]:
        return self._generate(request)

    async def _generate(
        self, request: pb.GenerateRequest, way: "tuple[AnswerStream, int] | None" = None
    ) -> AsyncIterator[pb.GenerateResponse]:
        """Args:
        way: the stream by which its tokens go, and its number in that.
        """
        self._enter("Generate")
        self.generating.append(request)
        self.streamed.append(way is not None)
        lane = await self._begin(request)
        if way is not None:
            way[0].lanes[way[1]] = lane
        lane.busy = True
        lane.num_acknowledged = 0
        generated: list[int] = []
        try:
            if len(request.previous_token_ids) > request.max_tokens:
                raise InvalidField("more than max_tokens", metadata={"field": "previous_token_ids"})
            generated += request.previous_token_ids
            lane.num_acknowledged = len(generated)
            while (reason := _finish_reason(request, lane, generated)) is None:
                await self._credit(request, lane, len(generated))
                await self._step(lane)
                length = len(lane.token_ids)
                generated.append(EOS if length == self.eos_after else self.first_token_id + length % 800)
                lane.token_ids.append(generated[-1])
                self._count_down()
                if way is None:
                    yield pb.GenerateResponse(token_id=generated[-1], detail=_detail(request, generated[-1]))
                else:
                    way[0].put(way[1], generated[-1], _detail(request, generated[-1]))
        finally:
            lane.busy = False
        if closes := self.closes and request.closes_session:
            del self.lanes[request.session_id]
        if self.forgets_done:
            return
        yield pb.GenerateResponse(
            done=pb.GenerateDone(
                finish_reason=reason,
                generated_token_count=len(generated),
                lane=lane.state(),
                prefill_duration_seconds=self.prefill_seconds,
                total_duration_seconds=1.5,
                evicted_token_count=lane.num_evicted_since(request.history_length),
                drafted_token_count=7,
                accepted_token_count=5,
                session_closed=closes,
            )
        )
        try:
            await asyncio.sleep(self.ending_seconds)
        except asyncio.CancelledError:
            self.num_cut_short += 1
            raise

    async def StreamAnswers(
        self, requests: AsyncIterator[pb.StreamAnswersRequest], context: Any
    ) -> AsyncIterator[pb.StreamAnswersResponse]:
        self._enter("StreamAnswers")
        stream = AnswerStream()
        self.streams.append(stream)
        hearing = asyncio.create_task(stream.hear(requests, self._generate))
        try:
            while True:
                yield await stream.next()
        finally:
            self.streams.remove(stream)
            for task in (ending := [hearing, *stream.tasks.values()]):
                task.cancel()
            await asyncio.wait(ending)

    async def CheckGrammar(self, request: pb.CheckGrammarRequest, context: object) -> pb.CheckGrammarResponse:
        self._enter("CheckGrammar")
        self.checking.append(request.grammar)
        return pb.CheckGrammarResponse()

    def _count_down(self) -> None:
        self.pause_in -= 1
        if self.pause_in == 0:
            self.flowing.clear()

    async def _credit(self, request: pb.GenerateRequest, lane: Lane, num_generated: int) -> None:
        """As long as 64 tokens are not passed on, there is no step."""
        while request.acknowledges and num_generated - lane.num_acknowledged >= CREDITS and lane.end is None:
            await asyncio.sleep(0.002)

    async def Acknowledge(self, request: pb.AcknowledgeRequest, context: object) -> pb.AcknowledgeResponse:
        self.acknowledging.append(request)
        self._enter("Acknowledge")
        lane = self._lane(request.session_id, request.epoch)
        lane.num_acknowledged = max(lane.num_acknowledged, request.num_tokens)
        return pb.AcknowledgeResponse()

    async def Stop(self, request: pb.StopRequest, context: object) -> pb.StopResponse:
        self._enter("Stop")
        lane = self._lane_for(request)
        lane.end = OperationStopped("stopped")
        while lane.busy:
            await asyncio.sleep(0.002)
        lane.end = None
        knows = request.HasField("journaled_length") and not self.forgets_generated
        tail = lane.token_ids[request.journaled_length :] if knows else []
        return pb.StopResponse(lane=lane.state(), token_ids=tail)

    async def Rewind(self, request: pb.RewindRequest, context: object) -> pb.RewindResponse:
        self._enter("Rewind")
        lane = self._lane_for(request)
        assert not lane.busy
        lane.check(request)
        if request.target_length > len(lane.token_ids) or lane.num_evicted_since(0):
            raise BoundaryNotReachable("forgotten")
        del lane.token_ids[request.target_length :]
        lane.num_rewinds += 1
        return pb.RewindResponse(lane=lane.state())

    async def CloseSession(self, request: pb.CloseSessionRequest, context: object) -> pb.CloseSessionResponse:
        self._enter("CloseSession")
        lane = self._lane(request.session_id, request.epoch)
        lane.end = SessionClosed("closed")
        del self.lanes[request.session_id]
        return pb.CloseSessionResponse(final_history_length=len(lane.token_ids))

    async def GetSlab(self, request: pb.GetSlabRequest, context: object) -> pb.GetSlabResponse:
        return pb.GetSlabResponse(
            num_lanes_in_use=len(self.lanes),
            kv_live_bytes=sum(lane.state().kv_live_bytes for lane in self.lanes.values()),
        )


def _finish_reason(
    request: pb.GenerateRequest, lane: Lane, generated: Sequence[int]
) -> pb.FinishReason.ValueType | None:
    if generated and generated[-1] in request.eos_token_ids:
        return pb.FINISH_REASON_EOS
    for stop in (list(sequence.token_ids) for sequence in request.stop_token_sequences):
        if generated[-len(stop) :] == stop:
            return pb.FINISH_REASON_STOP_SEQUENCE
    if len(generated) == request.max_tokens:
        return pb.FINISH_REASON_MAX_TOKENS
    return pb.FINISH_REASON_TRUNCATED if lane.refuses and not lane.room else None


def _detail(request: pb.GenerateRequest | pb.AppendRequest, token_id: int) -> pb.TokenDetail | None:
    """The token at -0.5, and ids from 0 on, each less likely by one."""
    if not request.HasField("logprobs"):
        return None
    top = [pb.TokenLogprob(token_id=id_, logprob=-1.0 - id_) for id_ in range(request.logprobs)]
    return pb.TokenDetail(logprob=-0.5, top_logprobs=top)


def leased(session_id: str, history_length: int = 0) -> SessionRecord:
    """A session under its first lease."""
    return SessionRecord(
        session_id=SessionId(session_id),
        pool=PoolName("tiny"),
        state=State.OPEN,
        model="tiny",
        worker_id=WorkerId("w"),
        incarnation=Incarnation("i"),
        address="",
        epoch=Epoch(1),
        sink=SINK,
        window=WINDOW,
        vocab_size=VOCAB_SIZE,
        reserved_bytes=LANE_BYTES,
        ttl_ms=1000,
        history_length=history_length,
    )


def generate(
    client: WorkerClient,
    session_id: str,
    max_tokens: int,
    *,
    history_length: int = 0,
    produced: Sequence[int] = (),
    timeout: float | None = None,
    journaled_length: int = 0,
    running: RunningCall | None = None,
) -> AsyncGenerator[Token | Done, None]:
    """What a worker answers to a Generate under the first lease of a session."""
    record = leased(session_id, history_length)
    request = GenerateRequest(SessionId(session_id), max_tokens, Sampling(seed=1))
    message = request.message(record, max_tokens=max_tokens, produced=produced, closes=False)
    return client.generate(record, message, timeout, running or RunningCall(), lambda: journaled_length)
