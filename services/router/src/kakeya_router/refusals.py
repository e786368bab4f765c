"""The errors that say what has become of a session."""

from kakeya_router.store.records import SessionRecord, State
from kakeya_shared.errors import (
    InvariantViolated,
    KakeyaError,
    OperationRunning,
    OperationStopped,
    SessionClosed,
    SessionNotFound,
    WorkerLost,
)

_BUSY_RETRY_SECONDS = 0.2


def not_found() -> SessionNotFound:
    return SessionNotFound("no such session: unknown, closed or expired")


def busy() -> OperationRunning:
    return OperationRunning("another operation is running on the session", retry_after_seconds=_BUSY_RETRY_SECONDS)


def lost() -> WorkerLost:
    return WorkerLost("the session's worker is gone, and the session with it; create a new one")


def failed(invariant: str) -> InvariantViolated:
    """`invariant` is "inv1" or "inv2"."""
    return InvariantViolated("an invariant of the session's cache was violated", metadata={"invariant": invariant})


def failed_before(record: SessionRecord) -> InvariantViolated:
    return failed("inv1" if record.inv1_violations else "inv2")


def overtaken(record: SessionRecord | None) -> KakeyaError:
    """Why an operation is not its router's any more, from the record as it is now."""
    if record is None or record.state is State.CLOSING:
        return SessionClosed("the session was closed while the operation ran")
    if record.state is State.LOST:
        return lost()
    if record.state is State.FAILED:
        return failed_before(record)
    return OperationStopped("the operation's lease lapsed and another router took the session over")
