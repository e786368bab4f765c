"""The errors of the SDK: one for each reason a runtime can give, in families that have one status each.

`except kakeya.KakeyaError` catches whatever a call can raise. A reason that this version does not know, from
a newer runtime, arrives as the family of its status.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import grpc

from kakeya_stubs.v1.error_reason_pb2 import ErrorReason

_PREFIX = "ERROR_REASON_"


class KakeyaError(Exception):
    """Base of the tree.

    Attributes:
        status: the gRPC status code.
        reason: name of the `ErrorReason` without its prefix; "" where the runtime gave none.
        message: for people.
        metadata: for programs, e.g. `field` of an InvalidField.
        retry_after_seconds: how long the runtime asks to wait before a retry; None if it does not say.
    """

    status: grpc.StatusCode = grpc.StatusCode.UNKNOWN
    reason: str = ""
    by_reason: ClassVar[dict[str, type["KakeyaError"]]] = {}
    by_status: ClassVar[dict[grpc.StatusCode, type["KakeyaError"]]] = {}

    def __init__(
        self,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.metadata = dict(metadata or {})
        self.retry_after_seconds = retry_after_seconds

    def __init_subclass__(
        cls, *, status: grpc.StatusCode | None = None, reason: "ErrorReason.ValueType | None" = None
    ) -> None:
        if status is not None:
            cls.status = status
        if reason is not None:
            cls.reason = ErrorReason.Name(reason).removeprefix(_PREFIX)
            KakeyaError.by_reason[cls.reason] = cls
        elif status is not None:
            KakeyaError.by_status[status] = cls


class SessionNotFound(KakeyaError, status=grpc.StatusCode.NOT_FOUND, reason=ErrorReason.ERROR_REASON_SESSION_NOT_FOUND):
    """Unknown, closed or expired."""


class ObjectNotFound(KakeyaError, status=grpc.StatusCode.NOT_FOUND, reason=ErrorReason.ERROR_REASON_OBJECT_NOT_FOUND):
    """Never stored, deleted, expired, or another tenant's."""


class InvalidRequest(KakeyaError, status=grpc.StatusCode.INVALID_ARGUMENT):
    """The request can never succeed; the session is unchanged."""


class InvalidField(InvalidRequest, reason=ErrorReason.ERROR_REASON_INVALID_FIELD):
    """A value is not acceptable; `metadata["field"]` names it."""


class TokenOutOfVocabulary(InvalidRequest, reason=ErrorReason.ERROR_REASON_TOKEN_OUT_OF_VOCABULARY):
    """A token id is outside the model's vocabulary."""


class EmptyHistory(InvalidRequest, reason=ErrorReason.ERROR_REASON_EMPTY_HISTORY):
    """Generate, or a fork, before any append."""


class AppendTooLong(InvalidRequest, reason=ErrorReason.ERROR_REASON_APPEND_TOO_LONG):
    """More tokens than one append may carry; send them in several."""


class Conflict(KakeyaError, status=grpc.StatusCode.ABORTED):
    """The session, or the object, is not in the state that the caller believes in."""


class OperationRunning(Conflict, reason=ErrorReason.ERROR_REASON_OPERATION_RUNNING):
    """Another operation is running on the session."""


class HistoryLengthMismatch(Conflict, reason=ErrorReason.ERROR_REASON_HISTORY_LENGTH_MISMATCH):
    """The history has another length than expected: another caller appended, or an earlier call half succeeded."""


class ObjectChanged(Conflict, reason=ErrorReason.ERROR_REASON_OBJECT_CHANGED):
    """The object has another version: another caller changed it, or an earlier attempt whose answer was lost."""


class Exhausted(KakeyaError, status=grpc.StatusCode.RESOURCE_EXHAUSTED):
    """What is asked for is used up now; `retry_after_seconds` says when it is worth another try."""


class NoCapacity(Exhausted, reason=ErrorReason.ERROR_REASON_NO_CAPACITY):
    """No worker has a free lane now."""


class QuotaExceeded(Exhausted, reason=ErrorReason.ERROR_REASON_QUOTA_EXCEEDED):
    """Your tenant or key has used what it may; `metadata` has the `quota`, its `limit` and the `subject`."""


class QueueFull(Exhausted, reason=ErrorReason.ERROR_REASON_QUEUE_FULL):
    """Too many calls wait for a lane already."""


class QueueTimedOut(Exhausted, reason=ErrorReason.ERROR_REASON_QUEUE_TIMED_OUT):
    """No lane came free while the call waited in the runtime's queue."""


class TooManyCalls(Exhausted, reason=ErrorReason.ERROR_REASON_TOO_MANY_CALLS):
    """Too many calls run at once."""


class SnapshotStoreUnavailable(Exhausted, reason=ErrorReason.ERROR_REASON_SNAPSHOT_STORE_UNAVAILABLE):
    """The runtime's snapshot store does not answer, and no more is remembered of the session without it."""


class Unauthenticated(
    KakeyaError, status=grpc.StatusCode.UNAUTHENTICATED, reason=ErrorReason.ERROR_REASON_UNAUTHENTICATED
):
    """The runtime asks for a key (`Client(api_key=...)`, $KAKEYA_API_KEY) and was given none that is good."""


class PermissionDenied(
    KakeyaError, status=grpc.StatusCode.PERMISSION_DENIED, reason=ErrorReason.ERROR_REASON_PERMISSION_DENIED
):
    """The key is good, and not for this."""


class CredentialNotFound(
    KakeyaError, status=grpc.StatusCode.NOT_FOUND, reason=ErrorReason.ERROR_REASON_CREDENTIAL_NOT_FOUND
):
    """No key or token has this id."""


class InvariantViolated(
    KakeyaError, status=grpc.StatusCode.FAILED_PRECONDITION, reason=ErrorReason.ERROR_REASON_INVARIANT_VIOLATED
):
    """An invariant of the session's cache was violated; the session is FAILED."""


class HistoryFull(
    KakeyaError, status=grpc.StatusCode.FAILED_PRECONDITION, reason=ErrorReason.ERROR_REASON_HISTORY_FULL
):
    """The tokens do not fit and the session refuses to forget; `metadata["room"]` says how many would.

    The session is unchanged.
    """


class BoundaryNotReachable(
    KakeyaError, status=grpc.StatusCode.FAILED_PRECONDITION, reason=ErrorReason.ERROR_REASON_BOUNDARY_NOT_REACHABLE
):
    """A session cannot branch off at this history length; `metadata["reachable"]` lists those at which it can."""


class SnapshotRefused(
    KakeyaError, status=grpc.StatusCode.FAILED_PRECONDITION, reason=ErrorReason.ERROR_REASON_SNAPSHOT_REFUSED
):
    """A snapshot of the session is damaged, or gone, or of another model."""


class Unavailable(KakeyaError, status=grpc.StatusCode.UNAVAILABLE):
    """Something that the call needs is not there now."""


class ConnectionFailed(Unavailable):
    """The runtime cannot be reached, or the connection broke; whether the call took effect is unknown."""


class NoWorker(Unavailable, reason=ErrorReason.ERROR_REASON_NO_WORKER):
    """No worker serves the model."""


class WorkerLost(Unavailable, reason=ErrorReason.ERROR_REASON_WORKER_LOST):
    """The session's worker is gone, and the session with it."""


class Draining(Unavailable, reason=ErrorReason.ERROR_REASON_DRAINING):
    """The router or worker is shutting down."""


class StoreUnavailable(Unavailable, reason=ErrorReason.ERROR_REASON_STORE_UNAVAILABLE):
    """The router's store does not answer."""


class Stopped(KakeyaError, status=grpc.StatusCode.CANCELLED):
    """The operation was stopped before its end; what was committed stays."""


class Cancelled(Stopped):
    """The call was cancelled from this side."""


class SessionClosed(Stopped, reason=ErrorReason.ERROR_REASON_SESSION_CLOSED):
    """The session was closed while the operation ran."""


class OperationStopped(Stopped, reason=ErrorReason.ERROR_REASON_OPERATION_STOPPED):
    """The runtime stopped the operation."""


class DeadlineExceeded(
    KakeyaError, status=grpc.StatusCode.DEADLINE_EXCEEDED, reason=ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED
):
    """The call's timeout passed; what was committed stays."""


class Internal(KakeyaError, status=grpc.StatusCode.INTERNAL, reason=ErrorReason.ERROR_REASON_INTERNAL):
    """Unforeseen; `metadata["trace_id"]` finds it in the runtime's logs."""


class StaleEpoch(KakeyaError, status=grpc.StatusCode.FAILED_PRECONDITION, reason=ErrorReason.ERROR_REASON_STALE_EPOCH):
    """Between router and worker only."""


class UnknownIncarnation(
    KakeyaError, status=grpc.StatusCode.NOT_FOUND, reason=ErrorReason.ERROR_REASON_UNKNOWN_INCARNATION
):
    """Between worker and router only."""


class WorkerIdTaken(
    KakeyaError, status=grpc.StatusCode.ALREADY_EXISTS, reason=ErrorReason.ERROR_REASON_WORKER_ID_TAKEN
):
    """Between worker and router only."""


class IncompatibleContract(
    KakeyaError, status=grpc.StatusCode.FAILED_PRECONDITION, reason=ErrorReason.ERROR_REASON_INCOMPATIBLE_CONTRACT
):
    """Between worker and router only."""


class RpcFailed(KakeyaError):
    """A failure that the runtime did not explain, e.g. UNIMPLEMENTED of an older one; see `status`."""

    def __init__(self, message: str, *, status: grpc.StatusCode = grpc.StatusCode.UNKNOWN, **details: Any) -> None:
        super().__init__(message, **details)
        self.status = status


class FoundElsewhere(KakeyaError):
    """The search of a turn has come to a place that the turn was not meant for, or to none: nothing has changed.

    The `found` of the generation says where.
    """


class MissingExtra(ImportError):
    """A feature was asked for whose optional dependencies are not installed; the message says how to get them."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an extra; install it with: pip install 'kakeya[{extra}]'")
