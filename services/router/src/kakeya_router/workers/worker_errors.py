"""What can go wrong with a call to a worker, beside the errors of the tree."""

import grpc

from kakeya_shared.errors import error_details
from kakeya_shared.errors.tree import DeadlineExceeded, KakeyaError, SessionNotFound, StaleEpoch
from kakeya_shared.process.detached_tasks import Outcome


class WorkerError(Outcome):
    """Base of these."""


class WorkerUnreachable(WorkerError):
    """The worker did not answer: nobody knows whether the call took effect."""


class LaneGone(WorkerError):
    """The worker holds no lane for the session under this epoch, or none that is of use."""


class WorkerFault(WorkerError):
    """The worker failed in a way that the contract does not know."""


def translated(error: grpc.aio.AioRpcError) -> Exception:
    """As an error of the tree, or one of these."""
    raised = error_details.decode(error)
    if raised is not None:
        return _of_lanes(raised)
    # CANCELLED: a server that shuts down resets calls that come in the same moment; what is cancelled here raises
    # CancelledError.
    if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return WorkerUnreachable(error.details())
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return deadline_exceeded()
    return WorkerFault(f"{error.code().name}: {error.details()}")


def of_standing(error: grpc.aio.AioRpcError | None) -> Exception:
    """As `translated`, of a call that carried others and has ended, None: without an error. Of these nobody knows more,
    whatever has ended it. Where a message was to be written just then, gRPC says INTERNAL.
    """
    raised = None if error is None else error_details.decode(error)
    if raised is None:
        return WorkerUnreachable(f"the stream of answers has ended: {error.details() if error else 'closed'}")
    return _of_lanes(raised)


def of_status(content: bytes) -> Exception:
    """As `translated`, of a google.rpc.Status."""
    raised = error_details.decode_status(content)
    if raised is None:
        return WorkerFault("an answer has failed with an error that is not known here")
    return _of_lanes(raised)


def deadline_exceeded() -> DeadlineExceeded:
    return DeadlineExceeded("the deadline passed; what was committed stays")


def _of_lanes(raised: KakeyaError) -> Exception:
    return LaneGone(raised.message) if isinstance(raised, SessionNotFound | StaleEpoch) else raised
