"""The error tree on the wire: gRPC's richer error model.

A status carries `google.rpc.Status` with an `ErrorInfo` (reason, domain, metadata), a `RetryInfo` where a retry can
help, and a `QuotaFailure` where a quota is used up, in the trailing metadata `grpc-status-details-bin`.
"""

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from kakeya_shared.errors.tree import KakeyaError, QuotaExceeded

DOMAIN = "kakeya"
DETAILS_KEY = "grpc-status-details-bin"


def encode(error: KakeyaError) -> bytes:
    """The serialized `google.rpc.Status` of an error."""
    status = status_pb2.Status(code=error.status.value[0], message=error.message)
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=error.metadata))
    if error.retry_after_seconds is not None:
        delay = Duration()
        delay.FromNanoseconds(round(error.retry_after_seconds * 1e9))
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    if isinstance(error, QuotaExceeded):
        failure = error_details_pb2.QuotaFailure()
        failure.violations.add(subject=error.metadata.get("subject", ""), description=error.message)
        status.details.add().Pack(failure)
    return status.SerializeToString()


def decode(rpc_error: grpc.aio.AioRpcError) -> KakeyaError | None:
    """The error that a Kakeya service raised, or None where the status is gRPC's own or another service's."""
    for key, value in rpc_error.trailing_metadata() or ():
        if key == DETAILS_KEY and isinstance(value, bytes):
            return decode_status(value)
    return None


def decode_status(content: bytes) -> KakeyaError | None:
    """What `encode` has made of an error; None as in `decode`."""
    try:
        details = status_pb2.Status.FromString(content)
    except DecodeError:
        return None
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    for detail in details.details:
        _ = detail.Unpack(info) or detail.Unpack(retry)
    kind = KakeyaError.by_reason.get(info.reason) if info.domain == DOMAIN else None
    if kind is None:
        return None
    error = kind(details.message, metadata=info.metadata)
    if retry.HasField("retry_delay"):
        error.retry_after_seconds = retry.retry_delay.ToNanoseconds() / 1e9
    return error
