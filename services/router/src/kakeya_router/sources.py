"""Sessions that others branch off from: `CreateSessionRequest.fork_from`."""

from dataclasses import replace

from kakeya_router import ownership, refusals, validation
from kakeya_router.operations import Operations, refusal
from kakeya_router.store.records import SessionRecord, State
from kakeya_router.store.session_store import Intent, SessionStore
from kakeya_router.wanted import OVERFLOW, Wanted
from kakeya_shared.errors import EmptyHistory
from kakeya_stubs.v1.runtime_pb2 import CreateSessionRequest, ForkPoint

_INTENT = Intent("fork", {}, is_charged=False)


class Sources:
    """Finds the sources of forks.

    A source is not held meanwhile, so that any number of forks are made of it at once. The worker, which copies
    between two steps, refuses one that has changed since.
    """

    def __init__(self, store: SessionStore, operations: Operations) -> None:
        self._store = store
        self._operations = operations

    async def find(self, request: CreateSessionRequest) -> SessionRecord:
        """The source as it is now, which refreshes its idle time; a refusal does not.

        Raises:
            SessionNotFound: there is none, or none of the caller's.
            OperationRunning, WorkerLost, InvariantViolated: it cannot be had.
            BoundaryNotReachable: it ends elsewhere.
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
        return await self._present(record, point)

    async def renewed(self, wanted: Wanted) -> Wanted:
        """With the source, if there is one, as it is now; raises as `find`."""
        return wanted if wanted.source is None else replace(wanted, source=await self.find(wanted.request))

    async def _present(self, record: SessionRecord, point: ForkPoint) -> SessionRecord:
        boundary = point.boundary if point.HasField("boundary") else None
        reply = await self._store.use_source(record, boundary)
        while reply.outcome == "left":
            async with self._operations.running(record, _INTENT):
                pass  # on the way in, what was left behind is ended
            reply = await self._store.use_source(record, boundary)
        if reply.outcome == "elsewhere":
            raise refusals.boundary_not_reachable(point.boundary, int(reply.rest[0]))
        if reply.outcome == "empty":
            raise EmptyHistory("append tokens before branching off")
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
