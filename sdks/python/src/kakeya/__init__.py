"""Kakeya: sessions that live on the server, with bounded KV. The client sends only new tokens."""

from kakeya._async.client import AsyncClient
from kakeya._async.generation import AsyncGeneration
from kakeya._async.session import AsyncSession
from kakeya._sync.client import Client
from kakeya._sync.generation import Generation
from kakeya._sync.session import Session
from kakeya._tls import tls_credentials
from kakeya.errors import (
    AppendTooLong,
    BoundaryNotReachable,
    Cancelled,
    Conflict,
    ConnectionFailed,
    CredentialNotFound,
    DeadlineExceeded,
    Draining,
    EmptyHistory,
    Exhausted,
    HistoryFull,
    HistoryLengthMismatch,
    Internal,
    InvalidField,
    InvalidRequest,
    InvariantViolated,
    KakeyaError,
    MissingExtra,
    NoCapacity,
    NoWorker,
    OperationRunning,
    OperationStopped,
    PermissionDenied,
    QueueFull,
    QueueTimedOut,
    QuotaExceeded,
    RpcFailed,
    SessionClosed,
    SessionNotFound,
    SnapshotRefused,
    SnapshotStoreUnavailable,
    Stopped,
    StoreUnavailable,
    TokenOutOfVocabulary,
    TooManyCalls,
    Unauthenticated,
    Unavailable,
    WorkerLost,
)
from kakeya.results import (
    AppendResult,
    GenerateResult,
    ListedSession,
    OverflowPolicy,
    ServedModel,
    SessionInfo,
    SessionState,
    StopReason,
    TokenDetail,
    Truncation,
)

__all__ = [
    "AsyncClient", "AsyncGeneration", "AsyncSession",
    "Client", "Generation", "Session",
    "tls_credentials",
    "AppendResult", "GenerateResult", "ListedSession", "OverflowPolicy", "ServedModel", "SessionInfo", "SessionState",
    "StopReason", "TokenDetail", "Truncation",
    "KakeyaError",
    "SessionNotFound",
    "InvalidRequest", "AppendTooLong", "EmptyHistory", "InvalidField", "TokenOutOfVocabulary",
    "Conflict", "HistoryLengthMismatch", "OperationRunning",
    "Exhausted", "NoCapacity", "QueueFull", "QueueTimedOut", "QuotaExceeded", "TooManyCalls",
    "SnapshotStoreUnavailable",
    "Unauthenticated", "PermissionDenied", "CredentialNotFound",
    "HistoryFull", "BoundaryNotReachable", "InvariantViolated", "SnapshotRefused",
    "Unavailable", "ConnectionFailed", "Draining", "NoWorker", "StoreUnavailable", "WorkerLost",
    "Stopped", "Cancelled", "OperationStopped", "SessionClosed",
    "DeadlineExceeded",
    "Internal",
    "RpcFailed",
    "MissingExtra",
]  # fmt: skip
