"""What can go wrong with a call to a worker, beside the errors of the tree."""

import grpc

from kakeya_shared.errors import error_details
from kakeya_shared.errors.tree import DeadlineExceeded, SessionNotFound, StaleEpoch
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
    if isinstance(raised, SessionNotFound | StaleEpoch):
        return LaneGone(raised.message)
    if raised is not None:
        return raised
    # CANCELLED: a server that shuts down resets calls that come in the same moment; what is cancelled here raises
    # CancelledError.
    if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return WorkerUnreachable(error.details())
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceeded("the deadline passed; what was committed stays")
    return WorkerFault(f"{error.code().name}: {error.details()}")
