"""The errors that say what has become of a session, and why there is none."""

import random
from collections.abc import Collection, Iterable
from typing import Literal, assert_never

from kakeya_router.store.outcomes import BeginOperation, ParkSession, TagTurn, UseSource
from kakeya_router.store.session_record import SessionRecord, State
from kakeya_router.store.sessions.session_store import ExceededQuota
from kakeya_shared.errors.tree import (
    BoundaryNotReachable,
    Draining,
    HistoryLengthMismatch,
    InvariantViolated,
    KakeyaError,
    NoWorker,
    ObjectChanged,
    ObjectNotFound,
    OperationRunning,
    OperationStopped,
    QueueFull,
    QueueTimedOut,
    QuotaExceeded,
    SessionClosed,
    SessionNotFound,
    SnapshotStoreUnavailable,
    WorkerLost,
)

_BUSY_RETRY_SECONDS = 0.2
_CROWD_RETRY_SECONDS = (1.0, 2.0)
_NEIGHBOUR_RETRY_SECONDS = (0.05, 0.25)

_QUOTAS = {
    "sessions": "sessions",
    "reserved_bytes": "reserved bytes",
    "tokens_per_minute": "tokens a minute",
    "key_sessions": "sessions of one key",
}

Refused = (
    Literal[BeginOperation.BUSY, BeginOperation.FAILED, BeginOperation.LOST, BeginOperation.MISSING]
    | Literal[ParkSession.BUSY, ParkSession.FAILED, ParkSession.LOST, ParkSession.MISSING]
    | Literal[TagTurn.BUSY, TagTurn.FAILED, TagTurn.LOST, TagTurn.MISSING]
    | Literal[UseSource.BUSY, UseSource.FAILED, UseSource.LOST, UseSource.MISSING]
)
"""What scripts say of a session that cannot be used."""


def crowd_retry_seconds() -> float:
    """When to come back to where there is no room: not together with all others that were refused."""
    return random.uniform(*_CROWD_RETRY_SECONDS)


def not_found() -> SessionNotFound:
    return SessionNotFound("no such session: unknown, closed or expired")


def no_object() -> ObjectNotFound:
    return ObjectNotFound("no such object: never stored, deleted or expired")


def object_changed() -> ObjectChanged:
    return ObjectChanged("the object has another version; fetch it and try again")


def objects_exceeded(max_bytes: int, tenant: str) -> QuotaExceeded:
    return QuotaExceeded(
        f"the quota is used up: at most {max_bytes} bytes of objects",
        retry_after_seconds=crowd_retry_seconds(),
        metadata={"quota": "object_bytes", "limit": str(max_bytes), "subject": f"tenant:{tenant}"},
    )


def boundary_not_reachable(boundary: int, reachable: Iterable[int]) -> BoundaryNotReachable:
    listed = list(map(str, reachable))
    return BoundaryNotReachable(
        f"the session cannot be resumed at {boundary} tokens; it can at {', '.join(listed)}",
        metadata={"reachable": ",".join(listed)},
    )


def busy() -> OperationRunning:
    return OperationRunning("another operation is running on the session", retry_after_seconds=_BUSY_RETRY_SECONDS)


class HistoryLost(WorkerLost):
    """What is left of a session's history is not what was written: it is LOST for good."""


def lost() -> WorkerLost:
    return WorkerLost("the session's worker is gone, and the session with it; create a new one")


def history_lost() -> HistoryLost:
    return HistoryLost("what the store kept of the session's history is damaged or gone; create a new session")


def cannot_park() -> SnapshotStoreUnavailable:
    return SnapshotStoreUnavailable(
        "no snapshot of the session can be written, and the journal does not reach back to where it began",
        retry_after_seconds=crowd_retry_seconds(),
    )


def journal_full(num_tokens: int) -> SnapshotStoreUnavailable:
    return SnapshotStoreUnavailable(
        f"the journal of the session is full ({num_tokens} tokens), and the snapshot store takes none of it",
        retry_after_seconds=crowd_retry_seconds(),
    )


def quota_exceeded(quota: ExceededQuota, tenant: str, key_id: str) -> QuotaExceeded:
    """Without a known time to come back, the crowd's."""
    subject = f"key:{key_id}" if quota.name == "key_sessions" else f"tenant:{tenant}"
    return QuotaExceeded(
        f"the quota is used up: at most {quota.limit} {_QUOTAS[quota.name]} in a pool",
        retry_after_seconds=quota.retry_ms / 1000 if quota.retry_ms else crowd_retry_seconds(),
        metadata={"quota": quota.name, "limit": quota.limit, "subject": subject},
    )


def queue_full() -> QueueFull:
    return QueueFull("too many calls wait for a lane already", retry_after_seconds=crowd_retry_seconds())


def queue_timed_out(seconds: float) -> QueueTimedOut:
    return QueueTimedOut(f"no lane came free within {seconds:g} s", retry_after_seconds=crowd_retry_seconds())


def draining() -> Draining:
    """Another router serves at once; only not all callers in the same instant."""
    return Draining(
        "this router is shutting down; another one serves the same sessions",
        retry_after_seconds=random.uniform(*_NEIGHBOUR_RETRY_SECONDS),
    )


def unknown_operation(record: SessionRecord) -> HistoryLengthMismatch:
    """Of a Generate that cannot be gone on with: it never began, or another operation has come since."""
    return HistoryLengthMismatch(
        "that operation is not the session's latest one", metadata={"history_length": str(record.journal_length)}
    )


def no_feature(lacking: Collection[str], of: str) -> NoWorker:
    """Another worker, or a newer one, would have it. Args: `of`: whom the features are lacking."""
    names = ", ".join(sorted(lacking))
    return NoWorker(f"{of} lacks what this needs: {names}", metadata={"feature": names})


def worker_gone() -> NoWorker:
    """It was there a moment ago; the next call finds the session elsewhere, or on its way there."""
    return NoWorker("the worker that holds the session is gone", retry_after_seconds=_BUSY_RETRY_SECONDS)


def failed(invariant: str) -> InvariantViolated:
    """`invariant` is "inv1" or "inv2"."""
    return InvariantViolated("an invariant of the session's cache was violated", metadata={"invariant": invariant})


def failed_before(record: SessionRecord) -> InvariantViolated:
    return failed("inv1" if record.inv1_violations else "inv2")


def unconfirmed() -> OperationStopped:
    return OperationStopped("what the operation has done is not all in the history; it can be gone on with")


def overtaken(record: SessionRecord | None) -> KakeyaError:
    """Why an operation is not its router's any more, from the record as it is now."""
    if record is None or record.state is State.CLOSING:
        return SessionClosed("the session was closed while the operation ran")
    if record.state is State.LOST:
        return lost()
    if record.state is State.FAILED:
        return failed_before(record)
    return OperationStopped("the operation's lease lapsed and another router took the session over")


def refusal(outcome: Refused, record: SessionRecord) -> KakeyaError:
    """Why a session cannot be used, as a script says."""
    match outcome:
        case BeginOperation.BUSY | ParkSession.BUSY | TagTurn.BUSY | UseSource.BUSY:
            return busy()
        case BeginOperation.FAILED | ParkSession.FAILED | TagTurn.FAILED | UseSource.FAILED:
            return failed_before(record)
        case BeginOperation.LOST | ParkSession.LOST | TagTurn.LOST | UseSource.LOST:
            return lost()
        case BeginOperation.MISSING | ParkSession.MISSING | TagTurn.MISSING | UseSource.MISSING:
            return not_found()
        case never:
            assert_never(never)
