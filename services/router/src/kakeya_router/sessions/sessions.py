"""Sessions as a whole: created once for each request, and closed."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial

import structlog

from kakeya_router.access import callers
from kakeya_router.contract import refusals, validation
from kakeya_router.contract.creates import CreateRequest
from kakeya_router.lanes import candidates
from kakeya_router.lanes.candidates import SourceChanged
from kakeya_router.lanes.closing import Closing
from kakeya_router.lanes.search import Search
from kakeya_router.lanes.wanted import Wanted
from kakeya_router.metrics import RouterMetrics
from kakeya_router.sessions.opening import Opening
from kakeya_router.sessions.sharing import Sharing
from kakeya_router.sessions.sources import Sources
from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.keys import pool_of
from kakeya_router.store.persistence import persist
from kakeya_router.store.session_record import Features, Incarnation, PoolName, SessionId, SessionRecord, State
from kakeya_router.store.sessions.closing_store import ClosingStore
from kakeya_router.store.sessions.creation_store import GIVEN_UP, CreationStore
from kakeya_router.store.sessions.session_changes import Cause, Limits
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.workers.fleet import Fleet
from kakeya_shared.errors.tree import NoWorker
from kakeya_shared.process.detached_tasks import DetachedTasks

_log = structlog.get_logger()

# While a session closes, which takes its worker a step.
_LOOK_SECONDS = 0.005
# At a source whose worker leaves each time that it was just there.
_MOST_LOOKS = 5


@dataclass(frozen=True, slots=True)
class Made:
    """A session that was asked for; `is_new`: no earlier request made it."""

    record: SessionRecord
    _: KW_ONLY
    is_new: bool


@dataclass(eq=False, slots=True)
class Sessions:
    """Creates sessions, once for each request id, and closes them.

    To create one is to find the workers that fit, and to let `Search` try and queue. Called by `RuntimeService` and
    `AdminService`, and by `Reaper` for sessions that have expired.

    Attributes:
        default_ttl_seconds: of a session that does not ask for another.
        default_model: for requests that name none; empty: the only one that is served.
        key_max_sessions: most sessions of a key in a pool; 0: no limit.
    """

    _store: CreationStore
    _closing_store: ClosingStore
    _worker_store: WorkerStore
    _fleet: Fleet
    _tasks: DetachedTasks
    _search: Search
    _opening: Opening
    _closing: Closing
    _sources: Sources
    _sharing: Sharing
    _metrics: RouterMetrics
    _: KW_ONLY
    default_ttl_seconds: int
    default_model: str
    key_max_sessions: int

    async def create(self, request: CreateRequest) -> SessionRecord:
        """Opens a session for the caller, or finds the one that its earlier request with the same request_id opened.

        Raises:
            as `opened`
        """
        return (await self.opened(request)).record

    async def opened(
        self,
        request: CreateRequest,
        features: Features = frozenset(),
        check: Callable[[int], None] | None = None,
        *,
        of_history: bool = False,
    ) -> Made:
        """As `create`.

        Args:
            features: that its worker has to name.
            check: told the size of its vocabulary before anything is done; raises what the caller is told.
            of_history: a fork at a boundary goes by its source's history, although that may end there.

        Raises:
            InvalidField, TokenOutOfVocabulary, EmptyHistory: the request can never succeed.
            SessionNotFound, OperationRunning, BoundaryNotReachable, WorkerLost, InvariantViolated: it is a fork, and
                its source cannot be forked like that.
            NoWorker: no worker serves what is asked for.
            NoCapacity, QueueFull, QueueTimedOut, QuotaExceeded: there is no room for it.
            Draining: this router shuts down while the call waits.
            StoreUnavailable: Redis does not answer; what was reserved is released once it does.
        """
        if request.fork_from is not None:
            callers.check_issued(request.fork_from.session_id)
            pool = pool_of(request.fork_from.session_id)
            earlier = await self._earlier(request, {pool}) if pool else None
            if earlier is not None:
                return Made(earlier, is_new=False)  # whatever has become of the source since
        wanted, fitting = await self._looked_for(request, features, of_history=of_history)
        vocab_size, lane_bytes = (min(getattr(w, name) for w in fitting) for name in ("vocab_size", "lane_bytes"))
        validation.check_vocabulary("eos_token_ids", request.eos_token_ids, vocab_size)
        if check is not None:
            check(vocab_size)
        # What reserves a lane finds the request as well, in its own pool, and needs no round trip more for it.
        is_asked = len(wanted.pools) > 1 or not any(worker.has_room for worker in fitting)
        while True:
            if is_asked and (earlier := await self._earlier(request, wanted.pools)):
                return Made(earlier, is_new=False)
            is_asked = True
            if record := await self._search.lane(self._opening, wanted, lane_bytes, workers=fitting):
                self._metrics.opened_sessions.labels("fork" if wanted.source else "new").inc()
                return Made(record, is_new=True)

    async def _looked_for(
        self, request: CreateRequest, features: Features, *, of_history: bool
    ) -> tuple[Wanted, list[WorkerRecord]]:
        """What is wanted, and workers that it may be opened on; raises as `opened`."""
        source: SessionRecord | None = None
        length: int | None = None
        for _ in range(_MOST_LOOKS):
            if request.fork_from is not None:
                source, length = await self._sources.find(request, request.fork_from, of_history=of_history)
            model = source.model if source else request.model or self.default_model
            asked = None, source.incarnation if source else Incarnation(""), model
            wanting = partial(self._wanted, request, source, length, features, model)
            try:
                wanted, fitting = wanting(await self._fleet.some(*asked))
                if any(worker.has_room for worker in fitting):
                    return wanted, fitting
            except NoWorker:
                pass  # by now there may be one
            try:
                return wanting(await self._fleet.some_anew(*asked))  # a pool may serve it that did not before
            except SourceChanged:
                continue  # its worker was there a moment ago; where it is now, or that it is lost, its record says
        raise candidates.source_changed()

    def _wanted(
        self,
        request: CreateRequest,
        source: SessionRecord | None,
        length: int | None,
        features: Features,
        model: str,
        workers: Sequence[WorkerRecord],
    ) -> tuple[Wanted, list[WorkerRecord]]:
        """What is wanted, and those of the workers that it may be opened on; raises as `opened`."""
        serving = candidates.of_model(workers, model)
        caller = callers.current()
        wanted = Wanted(
            caller,
            serving[0].model,
            {worker.pool for worker in serving},
            Limits(caller.quota.max_sessions, caller.quota.max_reserved_bytes, self.key_max_sessions),
            replace(request, ttl_seconds=request.ttl_seconds or self.default_ttl_seconds),
            source,
            length,
            features,
        )
        return wanted, candidates.of_wanted(workers, wanted)

    async def forked(self, request: CreateRequest) -> SessionRecord | None:
        """The fork that the caller's earlier request with the same request_id made; None: there is none. Raises
        InvalidField: it asked for something else, or was given up. Raises SessionNotFound, StoreUnavailable.
        """
        pool = pool_of(request.fork_from.session_id) if request.fork_from else None
        return await self._earlier(request, {pool}) if pool else None

    async def abandon(self, record: SessionRecord) -> None:
        """Closes a session that nobody was told of, once Redis answers; not where an equal request has found it."""
        await persist(lambda: self._closing.close(record, Cause.ABANDON))

    async def close(self, session_id: SessionId, *, own: bool = False) -> int:
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

    async def _closed_itself(self, session_id: SessionId, *, own: bool) -> int:
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
            told = {"state": record.state.value, "disposable": record.disposable}
            self._metrics.expired_sessions.inc()
            _log.info("session expired", session_id=record.session_id, **told)

    async def _earlier(self, request: CreateRequest, pools: Collection[PoolName]) -> SessionRecord | None:
        """The session that the caller's earlier request with the same request_id made, once it is open; None: there is
        none, or it never will be, so that the id is free again.

        Raises:
            InvalidField: it asked for something else, or was given up.
        """
        tenant, request_id = callers.current().tenant, request.request_id
        if not request_id:
            return None
        for pool in sorted(pools):
            session_id = await self._store.of_request(pool, tenant, request_id)
            if not session_id:
                continue
            if session_id.startswith(GIVEN_UP):
                raise validation.invalid("request_id", "the request with this id was given up by a CloseSession")
            record = await self._store.get(session_id)
            if record is not None and set(record.request_digest.split()).isdisjoint(request.digest.split()):
                raise validation.invalid("request_id", "an earlier request with this id asked for something else")
            opened = await self._sharing.opened(record) if record is not None else None
            if opened is not None:
                return opened
            await self._store.free_request(pool, tenant, request_id, session_id)
        return None
