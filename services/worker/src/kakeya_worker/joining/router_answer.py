"""What routers answer to a worker, and what is said of it where they refuse or do not answer."""

from collections.abc import Awaitable
from typing import TypeVar

import grpc

from kakeya_shared.errors import error_details
from kakeya_shared.errors.tree import KakeyaError, PermissionDenied, Unauthenticated, WorkerIdTaken
from kakeya_worker.joining.router_link import TokenError

Failure = grpc.aio.AioRpcError | KakeyaError | TokenError
TOKEN_CURE = "give it a good join token (`kakeya tokens create`) by --token-file or KAKEYA_WORKER_TOKEN"  # noqa: S105  # text for people

_Reply = TypeVar("_Reply")


async def answered(call: Awaitable[_Reply]) -> _Reply:
    """Awaits a call. Raises the error tree where the router answered, AioRpcError where none did."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise error_details.decode(error) or error from error


def trouble(error: Failure) -> str:
    """For the log."""
    if isinstance(error, Unauthenticated | PermissionDenied):
        return f"the router does not let this worker in any more; trying on. {TOKEN_CURE}"
    if isinstance(error, WorkerIdTaken):
        return (
            "another worker has joined under this worker's id; trying on until that is gone. End one of the two, or "
            "give each an id of its own (--worker-id)"
        )
    return "the router does not answer; trying the next"


def reason(error: Failure) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"  # a failed TLS handshake is in the details
    return error.reason if isinstance(error, KakeyaError) else str(error)
