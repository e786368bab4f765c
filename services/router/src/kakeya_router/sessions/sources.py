"""Sessions that others branch off from: `CreateSessionRequest.fork_from`."""

from dataclasses import replace

from kakeya_router.access import ownership
from kakeya_router.contract import refusals, validation
from kakeya_router.lanes.wanted import OVERFLOW, Wanted
from kakeya_router.operations.operations import Operations, refusal
from kakeya_router.snapshots import past
from kakeya_router.store.records import SessionRecord, State
from kakeya_router.store.sessions.session_changes import Intent
from kakeya_router.store.sessions.session_replies import Reply
from kakeya_router.store.sessions.session_store import SessionStore
from kakeya_shared.errors.tree import EmptyHistory
from kakeya_stubs.v1.runtime_pb2 import CreateSessionRequest, ForkPoint

_INTENT = Intent("fork", {}, is_charged=False)


class Sources:
    """Finds the sources of forks.

    A source is not held meanwhile, so that any number of forks are made of it at once. The worker, which copies
    between two steps, refuses one that has changed since. At an earlier length than its present one only its
    snapshots and journal are needed, and its lane is let alone.
    """

    def __init__(self, store: SessionStore, operations: Operations) -> None:
        self._store = store
        self._operations = operations

    async def find(
        self, request: CreateSessionRequest, *, of_history: bool = False
    ) -> tuple[SessionRecord, int | None]:
        """The source as it is now, and the earlier length that is wanted of it, or None. Its idle time begins anew; not
        where it is refused.

        Args:
            of_history: a boundary may be at the source's end by now, and it goes by its history nevertheless.

        Raises:
            SessionNotFound: there is none, or none of the caller's.
            OperationRunning, WorkerLost, InvariantViolated: it cannot be had.
            BoundaryNotReachable: it has no such length, or what it was like then is nowhere any more.
            EmptyHistory: there is nothing to branch off from.
            InvalidField: what is asked for is not the source's.
            StoreUnavailable
        """
        point = request.fork_from
        ownership.check_issued(point.session_id)
        record = ownership.callers_own(await self._store.get(point.session_id))
        if record.state is State.OPENING:
            raise refusals.not_found()
        _check_options(request, record)
        if not (point.HasField("boundary") and (of_history or point.boundary < record.journal_length)):
            reply = await self._at_its_end(record, point)
            if reply.outcome != "elsewhere" or reply.record is None or reply.record.journal_length < point.boundary:
                return _source(reply, record, point), None
            record = reply.record  # it has gone on since
        return await self._earlier(record, point), point.boundary

    async def renewed(self, wanted: Wanted) -> Wanted:
        """With the source, if there is one, as it is now; raises as `find`."""
        if wanted.source is None:
            return wanted
        source, earlier = await self.find(wanted.request, of_history=wanted.earlier is not None)
        return replace(wanted, source=source, earlier=earlier)

    async def mend(self, source: SessionRecord) -> None:
        """Sees to a source whose lane its worker says is not as on record, if nothing has happened on it since.

        Raises:
            as `Operations.running`
        """
        now = await self._store.get(source.session_id)
        if now is not None and _lease(now) == _lease(source):
            await self._operations.mend(now, _INTENT)

    async def _at_its_end(self, record: SessionRecord, point: ForkPoint) -> Reply:
        boundary = point.boundary if point.HasField("boundary") else None
        reply = await self._store.use_source(record, boundary)
        while reply.outcome in ("left", "moved"):
            if reply.outcome == "left":
                async with self._operations.running(record, _INTENT):
                    pass  # on the way in, what was left behind is ended
            record = ownership.callers_own(await self._store.get(record.session_id))  # it may be elsewhere now
            reply = await self._store.use_source(record, boundary)
        if reply.outcome == "empty":
            raise EmptyHistory("append tokens before branching off")
        return reply

    async def _earlier(self, record: SessionRecord, point: ForkPoint) -> SessionRecord:
        if not point.boundary:
            raise EmptyHistory("no session branches off before the first token of another")
        while True:
            is_reachable = past.is_reachable(record, point.boundary)
            reply = await self._store.use_source(record, point.boundary, is_reachable=is_reachable)
            if reply.outcome != "moved" or reply.record is None:
                break
            record = reply.record
        return _source(reply, record, point)


def _lease(record: SessionRecord) -> tuple[State, str, int, int]:
    """Changes with whatever happens on a session or to its lane."""
    return record.state, record.incarnation, record.epoch, record.operation_number


def _source(reply: Reply, record: SessionRecord, point: ForkPoint) -> SessionRecord:
    """What lua/use_source.lua answers, or raises the refusal."""
    if reply.outcome == "elsewhere" and reply.record is not None:
        raise past.not_reachable(reply.record, point.boundary)
    if reply.outcome != "present" or reply.record is None:
        raise refusal(reply, record)
    return reply.record


def _check_options(request: CreateSessionRequest, source: SessionRecord) -> None:
    """Raises InvalidField: one is given, and differs from what the lane to be copied is like."""
    of_source = {"model": source.model, "fingerprint": source.fingerprint, "sink": source.sink, "window": source.window}
    given = {field.name: value for field, value in request.ListFields()}
    for field, value in of_source.items():
        if given.get(field, value) != value:
            raise validation.invalid(field, f"a fork has its source's, {value}")
    if request.pin > source.sink:
        raise validation.invalid("pin", f"a fork has its source's sinks, {source.sink}")
    if request.on_overflow and OVERFLOW[request.on_overflow] is not source.on_overflow:
        raise validation.invalid("on_overflow", f"a fork has its source's, {source.on_overflow}")
