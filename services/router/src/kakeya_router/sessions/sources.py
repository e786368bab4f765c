"""Sessions that others branch off from: `CreateSessionRequest.fork_from`."""

from dataclasses import dataclass, replace

from kakeya_router.access import callers
from kakeya_router.contract import refusals, validation
from kakeya_router.contract.creates import CreateRequest, ForkPoint
from kakeya_router.lanes.wanted import Wanted
from kakeya_router.operations.operations import Operations
from kakeya_router.snapshots import past
from kakeya_router.store.outcomes import UseSource
from kakeya_router.store.session_record import Epoch, Incarnation, SessionRecord, State
from kakeya_router.store.sessions.creation_store import CreationStore
from kakeya_router.store.sessions.session_changes import Intent
from kakeya_router.store.sessions.session_store import Answer
from kakeya_shared.errors.tree import EmptyHistory

_INTENT = Intent("fork", {}, is_charged=False)


@dataclass(eq=False, slots=True)
class Sources:
    """Finds the sources of forks.

    A source is not held meanwhile, so that any number of forks are made of it at once. The worker, which copies
    between two steps, refuses one that has changed since. At an earlier length than its present one only its
    snapshots and journal are needed, and its lane is let alone. Called by `Sessions` and by `Opening`.
    """

    _store: CreationStore
    _operations: Operations

    async def find(
        self, request: CreateRequest, point: ForkPoint, *, of_history: bool = False
    ) -> tuple[SessionRecord, int | None]:
        """The source as it is now, and the earlier length that is wanted of it, or None. Its idle time begins anew; not
        where it is refused.

        Args:
            of_history: a boundary may be at the source's end by now, and it goes by its history nevertheless.

        Raises:
            SessionNotFound: there is none, or none of the caller's.
            OperationRunning, WorkerLost, InvariantViolated: it cannot be forked now, or any more.
            BoundaryNotReachable: it has no such length, or what it was like then is nowhere any more.
            EmptyHistory: there is nothing to branch off from.
            InvalidField: what is asked for is not the source's.
            StoreUnavailable
        """
        callers.check_issued(point.session_id)
        record = callers.callers_own(await self._store.get(point.session_id))
        if record.state is State.OPENING:
            raise refusals.not_found()
        _check_options(request, record)
        boundary, end = point.boundary, record.journal_length
        if record.head and not record.holds_lane and boundary in (None, end) and past.is_reachable(record, end):
            return await self._earlier(record, end), end  # it stays parked
        if boundary is None:
            return _source(await self._at_its_end(record, None), None), None
        if not of_history and boundary >= record.journal_length:
            answer = await self._at_its_end(record, boundary)
            record = answer.record
            if answer.outcome is not UseSource.ELSEWHERE or record.journal_length < boundary:
                return _source(answer, boundary), None
            # It has gone on since.
        return await self._earlier(record, boundary), boundary

    async def renewed(self, wanted: Wanted) -> Wanted:
        """With the source, if there is one, as it is now; raises as `find`."""
        if wanted.source is None or wanted.request.fork_from is None:
            return wanted
        source, earlier = await self.find(
            wanted.request, wanted.request.fork_from, of_history=wanted.earlier is not None
        )
        return replace(wanted, source=source, earlier=earlier)

    async def mend(self, source: SessionRecord) -> None:
        """Sees to a source whose lane its worker says is not as on record, if nothing has happened on it since.

        Raises:
            as `Operations.running`
        """
        now = await self._store.get(source.session_id)
        if now is not None and _lease(now) == _lease(source):
            await self._operations.mend(now, _INTENT)

    async def _at_its_end(self, record: SessionRecord, boundary: int | None) -> Answer[UseSource]:
        answer = await self._store.use_source(record, boundary)
        while answer.outcome in (UseSource.LEFT, UseSource.MOVED):
            if answer.outcome is UseSource.LEFT:
                async with self._operations.running(record, _INTENT):
                    pass  # on the way in, what was left behind is ended
            record = callers.callers_own(await self._store.get(record.session_id))  # it may be elsewhere now
            answer = await self._store.use_source(record, boundary)
        return answer

    async def _earlier(self, record: SessionRecord, boundary: int) -> SessionRecord:
        if not boundary:
            raise EmptyHistory("no session branches off before the first token of another")
        while True:
            is_reachable = past.is_reachable(record, boundary)
            answer = await self._store.use_source(record, boundary, is_reachable=is_reachable)
            if answer.outcome is not UseSource.MOVED:
                return _source(answer, boundary)
            record = answer.record


def _lease(record: SessionRecord) -> tuple[State, Incarnation, Epoch, int]:
    """Changes with whatever happens on a session or to its lane."""
    return record.state, record.incarnation, record.epoch, record.operation_number


def _source(answer: Answer[UseSource], boundary: int | None) -> SessionRecord:
    """What use_source.lua answers at last, or raises the refusal."""
    match answer.outcome:
        case UseSource.PRESENT:
            return answer.record
        case UseSource.ELSEWHERE:  # than the boundary
            raise past.not_reachable(answer.record, boundary or 0)
        case UseSource.EMPTY:
            raise EmptyHistory("append tokens before branching off")
        case UseSource.MISSING | UseSource.LEFT | UseSource.MOVED:  # the last two are looked at again before
            raise refusals.not_found()
        case refused:
            raise refusals.refusal(refused, answer.record)


def _check_options(request: CreateRequest, source: SessionRecord) -> None:
    """Raises InvalidField: one is given, and differs from what the lane to be copied is like."""
    of_source = {"model": source.model, "fingerprint": source.fingerprint, "sink": source.sink, "window": source.window}
    for field, value in of_source.items():
        if getattr(request, field) not in (None, "", value):
            raise validation.invalid(field, f"a fork has its source's, {value}")
    if (request.pin or 0) > source.sink:
        raise validation.invalid("pin", f"a fork has its source's sinks, {source.sink}")
    if request.on_overflow not in (None, source.on_overflow):
        raise validation.invalid("on_overflow", f"a fork has its source's, {source.on_overflow}")
