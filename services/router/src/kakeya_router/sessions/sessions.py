"""Sessions as a whole: made once for each request, closed by whoever may."""

import asyncio
from collections.abc import Collection, Sequence

import structlog

from kakeya_router.access import callers
from kakeya_router.access.callers import Caller
from kakeya_router.contract import refusals, validation
from kakeya_router.contract.creates import CreateRequest
from kakeya_router.lanes import candidates
from kakeya_router.lanes.closing import Closing
from kakeya_router.lanes.search import Search
from kakeya_router.lanes.wanted import Wanted
from kakeya_router.sessions.creating import Creating
from kakeya_router.sessions.sharing import Sharing
from kakeya_router.sessions.sources import Sources
from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.keys import pool_of
from kakeya_router.store.session_record import SessionRecord, State
from kakeya_router.store.sessions.closing_store import ClosingStore
from kakeya_router.store.sessions.creation_store import GIVEN_UP, CreationStore
from kakeya_router.store.sessions.session_changes import Cause, Limits
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_shared.process.detached_tasks import DetachedTasks

_log = structlog.get_logger()

# While a session closes, which takes its worker a step.
_LOOK_SECONDS = 0.005


class Sessions:
    """Creates and closes sessions.

    Args:
        default_ttl_seconds: of a session that does not ask for another.
        default_model: for requests that name none; empty: the only one that is served.
        key_max_sessions: most sessions of a key in a pool; 0: no limit.
    """

    def __init__(
        self,
        store: CreationStore,
        closing_store: ClosingStore,
        worker_store: WorkerStore,
        tasks: DetachedTasks,
        search: Search,
        creating: Creating,
        closing: Closing,
        sources: Sources,
        *,
        default_ttl_seconds: int,
        default_model: str,
        key_max_sessions: int,
    ) -> None:
        self._store = store
        self._closing_store = closing_store
        self._worker_store = worker_store
        self._tasks = tasks
        self._search = search
        self._creating = creating
        self._closing = closing
        self._sources = sources
        self._sharing = Sharing(store, tasks)
        self._default_ttl_seconds = default_ttl_seconds
        self._default_model = default_model
        self._key_max_sessions = key_max_sessions

    async def create(self, request: CreateRequest) -> SessionRecord:
        """Opens a session for the caller, or finds the one that its earlier request with the same request_id opened.

        Raises:
            InvalidField, TokenOutOfVocabulary, EmptyHistory: the request can never succeed.
            SessionNotFound, OperationRunning, BoundaryNotReachable, WorkerLost, InvariantViolated: it is a fork, and
                its source cannot be had like that.
            NoWorker: no worker serves what is asked for.
            NoCapacity, QueueFull, QueueTimedOut, QuotaExceeded: there is no room for it.
            Draining: this router shuts down while the call waits.
            StoreUnavailable: Redis does not answer; what was reserved is released once it does.
        """
        source: SessionRecord | None = None
        length: int | None = None
        if request.fork_from is not None:
            callers.check_issued(request.fork_from.session_id)
            pool = pool_of(request.fork_from.session_id)
            earlier = await self._earlier(request, {pool}) if pool else None
            if earlier is not None:
                return earlier  # whatever has become of the source since
            source, length = await self._sources.find(request, request.fork_from)
        workers = await self._worker_store.all_workers()
        model = source.model if source else request.model or self._default_model
        wanted = self._wanted(request, source, length, candidates.of_model(workers, model), callers.current())
        fitting = candidates.of_wanted(workers, wanted)
        validation.check_vocabulary("eos_token_ids", request.eos_token_ids, min(w.vocab_size for w in fitting))
        while True:
            record = await self._earlier(request, wanted.pools) or await self._search.lane(
                self._creating, wanted, min(worker.lane_bytes for worker in fitting), workers=fitting
            )
            if record is not None:
                return record

    async def close(self, session_id: str, *, own: bool = False) -> int:
        """Closes a session, also in the middle of an operation, or one that closed itself a moment ago.

        Returns the final history length.

        Args:
            own: only one of the caller's.

        Raises:
            SessionNotFound, StoreUnavailable
        """
        record = await self._store.get(session_id)
        if record is not None and own:
            callers.callers_own(record)
        closing = self._closing.close(record, Cause.REQUEST) if record is not None else None
        length = await self._tasks.complete(closing) if closing is not None else None
        if length is None:
            length = await self._closed_itself(session_id, own=own)
        _log.info("session closed", session_id=session_id, history_length=length)
        return length

    async def _closed_itself(self, session_id: str, *, own: bool) -> int:
        """Waits until a session that lived for one answer has given its lane back; raises as `close`."""
        while True:
            record = await self._store.get(session_id)
            if record is None or not record.ephemeral or record.state is not State.CLOSING:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        closed = await self._closing_store.closed(session_id)
        if closed is None:
            raise refusals.not_found()
        length, tenant = closed
        if own and tenant != callers.current().tenant:
            raise refusals.not_found()
        return length

    async def give_up(self, request_id: str) -> int:
        """Closes what the caller's CreateSession with this request_id opened; if it is under way, or comes later, it
        opens nothing. Returns the final history length, 0 where it had opened nothing. Raises StoreUnavailable.
        """
        return await self._tasks.complete(self._give_up(callers.current().tenant, request_id))

    async def _give_up(self, tenant: str, request_id: str) -> int:
        final_length = 0
        for pool in await self._worker_store.pools():
            session_id = await self._store.give_up_request(pool, tenant, request_id)
            record = await self._store.get(session_id) if session_id else None
            opened = await self._sharing.opened(record) if record is not None else None
            if opened is not None:
                final_length = await self._closing.close(opened, Cause.REQUEST) or 0
                _log.info("session given up", session_id=session_id, history_length=final_length)
        return final_length

    async def expire(self, record: SessionRecord) -> None:
        """Closes a session whose time has come, unless it is busy or was used meanwhile."""
        if await self._closing.close(record, Cause.EXPIRY) is not None:
            _log.info("session expired", session_id=record.session_id, state=record.state.value)

    async def _earlier(self, request: CreateRequest, pools: Collection[str]) -> SessionRecord | None:
        """The open session that the caller's earlier request with the same request_id made.

        Raises:
            InvalidField: it asked for something else, or was given up.
        """
        if not request.request_id:
            return None
        for pool in sorted(pools):
            session_id = await self._store.of_request(pool, callers.current().tenant, request.request_id)
            if session_id and session_id.startswith(GIVEN_UP):
                raise validation.invalid("request_id", "the request with this id was given up by a CloseSession")
            found = await self._shared(session_id, request.digest) if session_id else None
            if found is not None:
                return found
        return None

    async def _shared(self, session_id: str, request_digest: str) -> SessionRecord | None:
        """Waits until the session of an earlier call is open; None when it never will be.

        Raises:
            InvalidField: that call asked for something else.
        """
        record = await self._store.get(session_id)
        if record is not None and record.request_digest != request_digest:
            raise validation.invalid("request_id", "an earlier request with this id asked for something else")
        return await self._sharing.opened(record) if record is not None else None

    def _wanted(
        self,
        request: CreateRequest,
        source: SessionRecord | None,
        length: int | None,
        serving: Sequence[WorkerRecord],
        caller: Caller,
    ) -> Wanted:
        quota = caller.quota
        return Wanted(
            request,
            caller,
            serving[0].model,
            {worker.pool for worker in serving},
            request.ttl_seconds or self._default_ttl_seconds,
            Limits(quota.max_sessions, quota.max_reserved_bytes, self._key_max_sessions),
            source,
            length,
        )
