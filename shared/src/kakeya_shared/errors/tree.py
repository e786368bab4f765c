"""The one error tree of Kakeya's services.

Every leaf has one `ErrorReason` and one gRPC status; `error_details` puts it on the wire and takes it off
again, and the SDKs have one exception for each. Errors of other libraries are translated where they enter.
"""

from collections.abc import Mapping
from typing import ClassVar

import grpc

from kakeya_stubs.v1.error_reason_pb2 import ErrorReason

_PREFIX = "ERROR_REASON_"


class KakeyaError(Exception):
    """Base of the tree.

    Args:
        message: for people; may name ids and limits, never token contents or internals.
        retry_after_seconds: set where a retry can help (`google.rpc.RetryInfo`).
        metadata: for programs (`google.rpc.ErrorInfo.metadata`).
    """

    status: ClassVar[grpc.StatusCode]
    reason: ClassVar[str]
    by_reason: ClassVar[dict[str, type["KakeyaError"]]] = {}

    def __init__(
        self,
        message: str,
        *,
        retry_after_seconds: float | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_seconds = retry_after_seconds
        self.metadata = dict(metadata or {})

    def __init_subclass__(
        cls, *, reason: "ErrorReason.ValueType | None" = None, status: grpc.StatusCode | None = None
    ) -> None:
        if status is not None:
            cls.status = status
        if reason is not None:
            cls.reason = ErrorReason.Name(reason).removeprefix(_PREFIX)
            KakeyaError.by_reason[cls.reason] = cls


class SessionNotFound(KakeyaError, reason=ErrorReason.ERROR_REASON_SESSION_NOT_FOUND, status=grpc.StatusCode.NOT_FOUND):
    """Unknown, closed or expired."""


class ObjectNotFound(KakeyaError, reason=ErrorReason.ERROR_REASON_OBJECT_NOT_FOUND, status=grpc.StatusCode.NOT_FOUND):
    """Never stored, deleted, expired, or another tenant's."""


class InvalidRequest(KakeyaError, status=grpc.StatusCode.INVALID_ARGUMENT):
    """The request can never succeed; the session's state is unchanged."""


class InvalidField(InvalidRequest, reason=ErrorReason.ERROR_REASON_INVALID_FIELD):
    """A field's value is not acceptable; `metadata["field"]` names it."""


class TokenOutOfVocabulary(InvalidRequest, reason=ErrorReason.ERROR_REASON_TOKEN_OUT_OF_VOCABULARY):
    pass


class EmptyHistory(InvalidRequest, reason=ErrorReason.ERROR_REASON_EMPTY_HISTORY):
    """Generate before any append."""


class AppendTooLong(InvalidRequest, reason=ErrorReason.ERROR_REASON_APPEND_TOO_LONG):
    pass


class Conflict(KakeyaError, status=grpc.StatusCode.ABORTED):
    """The session, or the object, is not in the state that the caller believes in."""


class OperationRunning(Conflict, reason=ErrorReason.ERROR_REASON_OPERATION_RUNNING):
    pass


class HistoryLengthMismatch(Conflict, reason=ErrorReason.ERROR_REASON_HISTORY_LENGTH_MISMATCH):
    pass


class ObjectChanged(Conflict, reason=ErrorReason.ERROR_REASON_OBJECT_CHANGED):
    """The object has another version."""


class Exhausted(KakeyaError, status=grpc.StatusCode.RESOURCE_EXHAUSTED):
    """What is asked for is used up now."""


class NoCapacity(Exhausted, reason=ErrorReason.ERROR_REASON_NO_CAPACITY):
    """No worker of the pool has a free lane."""


class QuotaExceeded(Exhausted, reason=ErrorReason.ERROR_REASON_QUOTA_EXCEEDED):
    """The tenant or key has used what it may (`google.rpc.QuotaFailure`).

    `metadata["quota"]` names the quota, `["limit"]` its value and `["subject"]` whose it is, as "tenant:NAME" or
    "key:ID".
    """


class QueueFull(Exhausted, reason=ErrorReason.ERROR_REASON_QUEUE_FULL):
    """Too many calls wait for a lane already."""


class QueueTimedOut(Exhausted, reason=ErrorReason.ERROR_REASON_QUEUE_TIMED_OUT):
    """No lane came free while the call waited."""


class TooManyCalls(Exhausted, reason=ErrorReason.ERROR_REASON_TOO_MANY_CALLS):
    """Too many calls run at once."""


class SnapshotStoreUnavailable(Exhausted, reason=ErrorReason.ERROR_REASON_SNAPSHOT_STORE_UNAVAILABLE):
    """Snapshots cannot be read or written, and the journal is at its bound without them."""


class Unauthenticated(
    KakeyaError, reason=ErrorReason.ERROR_REASON_UNAUTHENTICATED, status=grpc.StatusCode.UNAUTHENTICATED
):
    """No key, or one that is unknown, revoked or expired: the caller is not told which."""


class PermissionDenied(
    KakeyaError, reason=ErrorReason.ERROR_REASON_PERMISSION_DENIED, status=grpc.StatusCode.PERMISSION_DENIED
):
    """The key or token is good, and not for this."""


class CredentialNotFound(
    KakeyaError, reason=ErrorReason.ERROR_REASON_CREDENTIAL_NOT_FOUND, status=grpc.StatusCode.NOT_FOUND
):
    """No key or token has this id."""


class HistoryFull(
    KakeyaError, reason=ErrorReason.ERROR_REASON_HISTORY_FULL, status=grpc.StatusCode.FAILED_PRECONDITION
):
    """The tokens do not fit and the session refuses to forget, or its history may not get longer.

    `metadata["room"]` says how many would fit.
    """


class BoundaryNotReachable(
    KakeyaError, reason=ErrorReason.ERROR_REASON_BOUNDARY_NOT_REACHABLE, status=grpc.StatusCode.FAILED_PRECONDITION
):
    """The session cannot be resumed at this history length; `metadata["reachable"]` lists those at which it can."""


class SnapshotRefused(
    KakeyaError, reason=ErrorReason.ERROR_REASON_SNAPSHOT_REFUSED, status=grpc.StatusCode.FAILED_PRECONDITION
):
    """A snapshot cannot be restored here; the message says why."""


class InvariantViolated(
    KakeyaError,
    reason=ErrorReason.ERROR_REASON_INVARIANT_VIOLATED,
    status=grpc.StatusCode.FAILED_PRECONDITION,
):
    """The session is FAILED; `metadata["invariant"]` is inv1 or inv2."""


class Unavailable(KakeyaError, status=grpc.StatusCode.UNAVAILABLE):
    """Something that the call needs is not there now."""


class NoWorker(Unavailable, reason=ErrorReason.ERROR_REASON_NO_WORKER):
    pass


class WorkerLost(Unavailable, reason=ErrorReason.ERROR_REASON_WORKER_LOST):
    pass


class Draining(Unavailable, reason=ErrorReason.ERROR_REASON_DRAINING):
    pass


class StoreUnavailable(Unavailable, reason=ErrorReason.ERROR_REASON_STORE_UNAVAILABLE):
    pass


class Stopped(KakeyaError, status=grpc.StatusCode.CANCELLED):
    """The operation ended before its end; what was committed stays."""


class SessionClosed(Stopped, reason=ErrorReason.ERROR_REASON_SESSION_CLOSED):
    pass


class OperationStopped(Stopped, reason=ErrorReason.ERROR_REASON_OPERATION_STOPPED):
    pass


class DeadlineExceeded(
    KakeyaError,
    reason=ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED,
    status=grpc.StatusCode.DEADLINE_EXCEEDED,
):
    pass


class Internal(KakeyaError, reason=ErrorReason.ERROR_REASON_INTERNAL, status=grpc.StatusCode.INTERNAL):
    """Unforeseen; carries a trace id and no internals."""


class StaleEpoch(KakeyaError, reason=ErrorReason.ERROR_REASON_STALE_EPOCH, status=grpc.StatusCode.FAILED_PRECONDITION):
    """Router to worker: the caller's lease is not the lane's, or the worker's own has lapsed."""


class UnknownIncarnation(
    KakeyaError, reason=ErrorReason.ERROR_REASON_UNKNOWN_INCARNATION, status=grpc.StatusCode.NOT_FOUND
):
    """Worker to router: not registered, or lost in the meantime."""


class WorkerIdTaken(
    KakeyaError, reason=ErrorReason.ERROR_REASON_WORKER_ID_TAKEN, status=grpc.StatusCode.ALREADY_EXISTS
):
    """Worker to router: another worker has joined under the id since."""


class IncompatibleContract(
    KakeyaError,
    reason=ErrorReason.ERROR_REASON_INCOMPATIBLE_CONTRACT,
    status=grpc.StatusCode.FAILED_PRECONDITION,
):
    """Worker to router: the contract versions do not interoperate."""
