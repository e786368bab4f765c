"""gRPC's errors, made into the SDK's."""

from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from kakeya._transport import _proxy
from kakeya.errors import ConnectionFailed, DeadlineExceeded, KakeyaError, RpcFailed

_DOMAIN = "kakeya"
_DETAILS_KEY = "grpc-status-details-bin"

# Statuses that gRPC itself gives a call; any other without details comes from something that is no Kakeya.
_WITHOUT_DETAILS: dict[grpc.StatusCode, type[KakeyaError]] = {
    grpc.StatusCode.UNAVAILABLE: ConnectionFailed,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    # A server that shuts down resets calls that come in the same moment. A runtime that ends one says why.
    grpc.StatusCode.CANCELLED: ConnectionFailed,
}


def translate(error: grpc.RpcError, address: str) -> KakeyaError:
    """The error that a failed call to an address stands for: by the runtime's reason, else by the status."""
    status = error.code()
    details = _details(error.trailing_metadata() or ())
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    for detail in details.details:
        _ = detail.Unpack(info) or detail.Unpack(retry)
    ours = info.domain == _DOMAIN
    kind = _kind(status, info.reason if ours else "")
    said = error.details() or status.name
    if kind is ConnectionFailed and (proxy := _proxy.variable(address)):
        said += f" (through the proxy of ${proxy})"
    translated = kind(
        said,
        metadata=info.metadata if ours else None,
        retry_after_seconds=retry.retry_delay.ToNanoseconds() / 1e9 if retry.HasField("retry_delay") else None,
    )
    translated.status = status
    if ours:
        translated.reason = info.reason
    return translated


def _kind(status: grpc.StatusCode, reason: str) -> type[KakeyaError]:
    if not reason:
        return _WITHOUT_DETAILS.get(status, RpcFailed)
    return KakeyaError.by_reason.get(reason) or KakeyaError.by_status.get(status, RpcFailed)


def _details(metadata: Iterable[Any]) -> status_pb2.Status:
    for key, value in metadata:
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                return status_pb2.Status.FromString(value)
            except DecodeError:
                break  # the status itself still tells something
    return status_pb2.Status()
