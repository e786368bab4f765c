"""Opening sessions on workers, and closing them so that nothing is left over."""

import asyncio
import hashlib
import secrets
from collections.abc import Sequence

import structlog

from kakeya_router import candidates, refusals, validation
from kakeya_router.detached_tasks import DetachedTasks
from kakeya_router.placement import Placement
from kakeya_router.store.keys import new_session_id
from kakeya_router.store.persistence import persist
from kakeya_router.store.records import UNSET, Overflow, SessionRecord, State, WorkerRecord
from kakeya_router.store.session_store import Cause, SessionStore
from kakeya_router.store.worker_store import WorkerStore
from kakeya_router.worker_client import WorkerClients, WorkerError
from kakeya_shared.errors import (
    DeadlineExceeded,
    Internal,
    InvalidField,
    KakeyaError,
    NoCapacity,
    NoWorker,
    Unavailable,
)
from kakeya_stubs.v1 import runtime_pb2
from kakeya_stubs.v1.runtime_pb2 import CreateSessionRequest

_log = structlog.get_logger()

_POLL_SECONDS = 0.05
# Taking or freeing a lane waits for one step of the worker at most; a large model on a small host steps for seconds.
_LANE_SECONDS = 10.0
LANE_LEASE_SECONDS = 1.5 * _LANE_SECONDS
_OVERFLOW = {
    runtime_pb2.OVERFLOW_POLICY_UNSPECIFIED: Overflow.EVICT,
    runtime_pb2.OVERFLOW_POLICY_EVICT: Overflow.EVICT,
    runtime_pb2.OVERFLOW_POLICY_REFUSE: Overflow.REFUSE,
}


class Sessions:
    """Creates and closes sessions.

    Args:
        default_ttl_seconds: of a session that does not ask for another.
        default_model: for requests that name none; empty: the only one that is served.
    """

    def __init__(
        self,
        store: SessionStore,
        worker_store: WorkerStore,
        workers: WorkerClients,
        tasks: DetachedTasks,
        placement: Placement,
        *,
        default_ttl_seconds: int,
        default_model: str,
    ) -> None:
        self._store = store
        self._worker_store = worker_store
        self._workers = workers
        self._tasks = tasks
        self._placement = placement
        self._default_ttl_seconds = default_ttl_seconds
        self._default_model = default_model

    async def create(self, request: CreateSessionRequest) -> SessionRecord:
        """Opens a session, or finds the one that an earlier request with the same request_id opened.

        Raises:
            InvalidField, TokenOutOfVocabulary: the request can never succeed.
            NoWorker, NoCapacity: no worker serves what is asked for, or none that does has room.
            StoreUnavailable: Redis does not answer; what was reserved is released once it does.
        """
        validation.check_create(request)
        serving = candidates.of_model(await self._worker_store.all_workers(), request.model or self._default_model)
        fitting = candidates.of_fingerprint(serving, request.fingerprint)
        validation.check_vocabulary("eos_token_ids", request.eos_token_ids, min(w.vocab_size for w in fitting))
        while True:
            record = await self._earlier(request, serving) or await self._place(request, fitting)
            if record is not None:
                return record

    async def close(self, session_id: str) -> int:
        """Closes a session, also in the middle of an operation; returns the final history length.

        Raises:
            SessionNotFound, StoreUnavailable
        """
        record = await self._store.get(session_id)
        length = await self._tasks.complete(self._close(record, Cause.REQUEST)) if record is not None else None
        if length is None:
            raise refusals.not_found()
        _log.info("session closed", session_id=session_id, history_length=length)
        return length

    async def expire(self, record: SessionRecord) -> None:
        """Closes a session whose time has come, unless it is busy or was used meanwhile."""
        if await self._close(record, Cause.EXPIRY) is not None:
            _log.info("session expired", session_id=record.session_id, state=record.state.value)

    async def _earlier(self, request: CreateSessionRequest, serving: Sequence[WorkerRecord]) -> SessionRecord | None:
        if not request.request_id:
            return None
        for pool in sorted({worker.pool for worker in serving}):
            session_id = await self._store.of_request(pool, request.request_id)
            found = await self._shared(session_id, _digest(request)) if session_id else None
            if found is not None:
                return found
        return None

    async def _shared(self, session_id: str, digest: str) -> SessionRecord | None:
        """Waits until the session of an earlier call is open; None when it never will be.

        Raises:
            InvalidField: that call asked for something else.
        """
        while True:
            record = await self._store.get(session_id)
            if record is not None and record.request_digest != digest:
                raise validation.invalid("request_id", "an earlier request with this id asked for something else")
            shared = (await self._store.share(record)).record if record is not None else None
            if shared is None or shared.state is not State.OPENING:
                return shared
            await asyncio.sleep(_POLL_SECONDS)

    async def _place(self, request: CreateSessionRequest, fitting: Sequence[WorkerRecord]) -> SessionRecord | None:
        """Opens a session on the first worker that takes it; None when another call with the request id did."""
        roomy = [worker for worker in fitting if worker.has_room]
        refused: list[KakeyaError] = [candidates.no_capacity()] if len(roomy) < len(fitting) else []
        for worker in self._placement.order(roomy) if roomy else ():
            try:
                record = await self._open(self._new_record(request, worker))
            except (InvalidField, NoCapacity, NoWorker) as refusal:
                refused.append(refusal)
                continue
            if record is not None:
                _log.info("session created", session_id=record.session_id, worker_id=worker.worker_id)
            return record
        raise candidates.verdict(refused)

    async def _open(self, record: SessionRecord) -> SessionRecord | None:
        """Opens a session on its worker; a client that leaves in the middle, or a refusal, leaves nothing.

        Returns:
            The record of the open session; None when the request id was answered before.

        Raises:
            InvalidField, NoCapacity, NoWorker: this worker does not take it.
        """
        opening = self._tasks.start(self._reserve_and_open(record, secrets.token_hex(8)))
        try:
            return await asyncio.shield(opening)
        except (InvalidField, NoCapacity, NoWorker):
            await self._tasks.complete(self._abandon(record, opening))
            raise
        except BaseException:
            self._tasks.start(self._abandon(record, opening))
            raise

    async def _reserve_and_open(self, record: SessionRecord, op_id: str) -> SessionRecord | None:
        match (await self._store.reserve(record, op_id)).outcome:
            case "duplicate":
                return None
            case "full":
                raise candidates.no_capacity()
            case "gone":
                raise candidates.unreachable()
        try:
            lane = await self._workers.at(record.address).open_session(record, _LANE_SECONDS)
        except (WorkerError, DeadlineExceeded, Unavailable, Internal) as error:
            _log.info("worker does not open sessions", worker_id=record.worker_id, error=repr(error))
            raise candidates.unreachable() from error
        opened = await self._store.mark_open(record, op_id, lane.sink, lane.window)
        if opened.record is None:
            raise candidates.unreachable()
        return opened.record

    async def _abandon(self, record: SessionRecord, opening: asyncio.Task[SessionRecord | None]) -> None:
        await asyncio.wait([opening])
        await persist(lambda: self._close(record, Cause.ABANDON))

    async def _close(self, record: SessionRecord, cause: Cause) -> int | None:
        """Returns the final history length; None when the session is gone already or must be kept."""
        op_id = secrets.token_hex(8)
        claimed = (await self._store.begin_close(record, op_id, cause)).record
        if claimed is None:
            return None
        final_length = claimed.history_length
        if claimed.holds_lane:
            try:
                final_length = await self._workers.at(record.address).close_session(record, _LANE_SECONDS)
            except (WorkerError, KakeyaError) as error:
                # It frees the lane when it finds it among the orphans of a heartbeat, or it is gone.
                _log.info("worker did not close the lane", session_id=record.session_id, error=repr(error))
        await self._store.delete(record, op_id)
        return final_length

    def _new_record(self, request: CreateSessionRequest, worker: WorkerRecord) -> SessionRecord:
        ttl_seconds = request.ttl_seconds if request.HasField("ttl_seconds") else self._default_ttl_seconds
        return SessionRecord(
            session_id=new_session_id(worker.pool),
            pool=worker.pool,
            state=State.OPENING,
            model=worker.model,
            worker_id=worker.worker_id,
            incarnation=worker.incarnation,
            address=worker.address,
            epoch=1,
            sink=request.sink if request.HasField("sink") else UNSET,
            window=request.window if request.HasField("window") else UNSET,
            pin=request.pin if request.HasField("pin") else UNSET,
            on_overflow=_OVERFLOW[request.on_overflow],
            exact=worker.exact,
            fingerprint=worker.fingerprint,
            vocab_size=worker.vocab_size,
            reserved_bytes=worker.lane_bytes,
            ttl_ms=ttl_seconds * 1000,
            label=request.client_label,
            eos=",".join(map(str, request.eos_token_ids)),
            request_id=request.request_id,
            request_digest=_digest(request),
        )


def _digest(request: CreateSessionRequest) -> str:
    """Equal for equal requests."""
    return hashlib.sha256(request.SerializeToString(deterministic=True)).hexdigest()
