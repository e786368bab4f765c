"""What goes wrong: a status, and what OpenAI's API says of it, `{"error": {message, type, param, code}}`."""

import math
from collections.abc import Mapping
from typing import Any

from kakeya import (
    AppendTooLong,
    BoundaryNotReachable,
    Conflict,
    DeadlineExceeded,
    Exhausted,
    HistoryFull,
    InvalidField,
    InvalidRequest,
    KakeyaError,
    PermissionDenied,
    QuotaExceeded,
    SessionNotFound,
    SnapshotStoreUnavailable,
    Stopped,
    Unauthenticated,
    Unavailable,
)

INVALID, SERVER, RATE_LIMIT, PERMISSION = (
    "invalid_request_error",
    "server_error",
    "rate_limit_error",
    "permission_error",
)
CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
_RETRY_AFTER_SECONDS = 1.0
"""Where the runtime does not say when another try is worth it: most requests end within seconds."""


class ApiError(Exception):
    """A failure as its client will read it.

    Args:
        status: of HTTP.
        message: for people.
        type: OpenAI's family of the error.
        param: the field that is at fault.
        code: for programs.
        retry_after_seconds: when another try is worth it; said in whole seconds, at least one.
        headers: more that go with the status.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = INVALID,
        param: str | None = None,
        code: str | None = None,
        retry_after_seconds: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type
        self.param = param
        self.code = code
        self.retry_after_seconds = retry_after_seconds
        self._headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The JSON of an answer or of an event in a stream, in OpenAI's shape (`error_shapes` has all)."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def header_items(self) -> dict[str, str]:
        """What goes with the status."""
        headers = dict(self._headers)
        if self.retry_after_seconds is not None:
            headers["retry-after"] = str(max(1, math.ceil(self.retry_after_seconds)))
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return headers


class TakenOver(ApiError):
    """Another server goes on with the answer, and its session is that one's."""

    def __init__(self) -> None:
        super().__init__(409, "another server goes on with this stream", code="stream_taken_over")


def unavailable(message: str, code: str, retry_after_seconds: float | None = None) -> ApiError:
    """503: not now, and not the client's fault."""
    return ApiError(
        503, message, type=SERVER, code=code, retry_after_seconds=retry_after_seconds or _RETRY_AFTER_SECONDS
    )


def too_many(message: str, code: str = "rate_limit_exceeded", retry_after_seconds: float | None = None) -> ApiError:
    """429: it is another client's turn."""
    return ApiError(
        429, message, type=RATE_LIMIT, code=code, retry_after_seconds=retry_after_seconds or _RETRY_AFTER_SECONDS
    )


def bad_key(message: str = "no key, or one that is not good; send it as `Authorization: Bearer KEY`") -> ApiError:
    return ApiError(401, message, code="invalid_api_key")


def model_not_found(model: str) -> ApiError:
    return ApiError(404, f"the model {model!r} does not exist", param="model", code="model_not_found")


def from_kakeya(error: KakeyaError, fields: Mapping[str, str] | None = None) -> ApiError:
    """What a failed call of the runtime is to a client of this API.

    Args:
        fields: which field of the request a field of the runtime's comes from, where its name differs.
    """
    match error:
        case Unauthenticated():
            return bad_key(error.message)
        case PermissionDenied():
            return ApiError(403, error.message, type=PERMISSION, code="permission_denied")
        case QuotaExceeded():
            return too_many(error.message, "quota_exceeded", error.retry_after_seconds)
        case SnapshotStoreUnavailable():  # of everybody, not this client's share of it
            return unavailable(error.message, "snapshot_store_unavailable", error.retry_after_seconds)
        case Exhausted():
            return too_many(error.message, retry_after_seconds=error.retry_after_seconds)
        case HistoryFull():
            return context_length_exceeded(error.message, fields)
        case AppendTooLong():  # prompts go in parts: the router allows less than this server was told
            return _unforeseen(error)
        case InvalidField() if error.metadata.get("field") in ("pin", "sink"):
            return context_length_exceeded("the system messages leave no room in a session", fields)
        case InvalidField():
            field = error.metadata.get("field", "")
            return ApiError(400, error.message, param=(fields or {}).get(field, field) or None, code="invalid_value")
        case InvalidRequest():
            return ApiError(400, error.message, code="invalid_value")
        case DeadlineExceeded():
            return unavailable(error.message, "timeout")
        case Unavailable() | SessionNotFound() | Stopped() | Conflict() | BoundaryNotReachable():
            # Another try gets another session, or finds this one free, whatever came in between.
            return unavailable(error.message, (error.reason or "unavailable").lower(), error.retry_after_seconds)
    return _unforeseen(error)


def context_length_exceeded(message: str, fields: Mapping[str, str] | None = None) -> ApiError:
    param = (fields or {}).get("token_ids", "messages")
    return ApiError(400, message, param=param, code=CONTEXT_LENGTH_EXCEEDED)


def internal(trace_id: str = "") -> ApiError:
    """500, without internals; the trace finds it in the logs."""
    place = f" (trace {trace_id})" if trace_id else ""
    return ApiError(500, f"an unforeseen error{place}", type=SERVER, code="internal_error")


def _unforeseen(error: KakeyaError) -> ApiError:
    return internal(error.metadata.get("trace_id", ""))
