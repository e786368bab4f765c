"""An OpenSession as it comes over the wire: checked, and in the engine's words."""

import re
from collections.abc import Collection

from kakeya_shared.errors.tree import InvalidField
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from kakeya_worker.engine.lanes.lane_state import ForkSource
from kakeya_worker.engine.seams.retention import SessionOptions

# What any router may give; a lane of another name could not be reported to one.
_SESSION_ID = re.compile(r"[!-~]{1,128}")
_TENANT = re.compile(r"[!-~]{0,64}")
_MAX_NAME_LETTERS = 64
_MAX_EPOCH = 1 << 53
_FIRST_EPOCH = 1  # a session that comes back with a later one is not refused for what is missing here
_OPTIONS = frozenset({"sink", "window", "pin", "refuse_overflow"})


def check(request: pb.OpenSessionRequest, speculations: Collection[str]) -> None:
    """Raises InvalidField.

    Args:
        speculations: names of the proposers that there are here.
    """
    check_lease(request)
    if request.speculation and request.epoch <= _FIRST_EPOCH and request.speculation not in speculations:
        known = ", ".join(sorted(speculations))
        raise _invalid("speculation", f"no proposer is named {request.speculation!r} here (there are: {known})")
    if request.HasField("fork_from") and request.snapshots:
        raise _invalid("snapshots", "a session begins with a fork or with snapshots, not with both")
    if request.HasField("fork_from") or request.snapshots:
        for field, _ in request.ListFields():
            if field.name in _OPTIONS:
                raise _invalid(field.name, "a fork has its source's, a snapshot its own")


def check_lease(request: pb.OpenSessionRequest | pb.WriteLaneRequest) -> None:
    """Whose lane it is to be, and what drafts for it; raises InvalidField."""
    if not _SESSION_ID.fullmatch(request.session_id):
        raise _invalid("session_id", "must be 1 to 128 visible ASCII characters")
    if not _TENANT.fullmatch(request.tenant):
        raise _invalid("tenant", "must be at most 64 visible ASCII characters")
    if len(request.speculation) > _MAX_NAME_LETTERS:
        raise _invalid("speculation", f"a proposer's name has at most {_MAX_NAME_LETTERS} letters")
    if request.epoch > _MAX_EPOCH:
        raise _invalid("epoch", f"must be at most {_MAX_EPOCH}")


def options(request: pb.OpenSessionRequest) -> SessionOptions:
    return SessionOptions(
        sink=request.sink if request.HasField("sink") else None,
        window=request.window if request.HasField("window") else None,
        pin=request.pin,
        refuses_overflow=request.refuse_overflow,
        speculation=request.speculation,
    )


def source(request: pb.OpenSessionRequest) -> ForkSource | None:
    """The lane that the session begins as a copy of; None: it begins empty."""
    if not request.HasField("fork_from"):
        return None
    given = request.fork_from
    digest = given.history_digest if given.HasField("history_digest") else None
    return ForkSource(given.session_id, given.epoch, given.history_length, digest, request.speculation)


def _invalid(field: str, why: str) -> InvalidField:
    return InvalidField(f"{field}: {why}", metadata={"field": field})
