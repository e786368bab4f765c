"""CreateSession, and what else makes or gives up sessions: requests, checked once and frozen."""

import hashlib
from dataclasses import dataclass

from kakeya_router.contract.validation import (
    MAX_FINGERPRINT_BYTES,
    MAX_REQUEST_ID_BYTES,
    MAX_SPECULATION_BYTES,
    RequestLimits,
    check_text,
    invalid,
)
from kakeya_router.store.session_record import Overflow, SessionId
from kakeya_shared.contract import labels
from kakeya_stubs.v1 import runtime_pb2 as pb

# A client's own id for a request, such as a UUID.
# Models have one to a handful; a client that stops at many more still has a record of a few KB.
MAX_EOS_TOKEN_IDS = 1024
# A conversation that nobody has touched for a year will not be gone on with.
MAX_TTL_SECONDS = 365 * 86_400

_OVERFLOW = {
    pb.OVERFLOW_POLICY_UNSPECIFIED: None,
    pb.OVERFLOW_POLICY_EVICT: Overflow.EVICT,
    pb.OVERFLOW_POLICY_REFUSE: Overflow.REFUSE,
}


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """Where a session branches off from another; no boundary: at that one's end."""

    session_id: SessionId
    boundary: int | None = None


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """A session that is asked for. None, or empty: left to the router, the worker or the source.

    Attributes:
        request_id: equal requests with one id are answered with one session.
        digest: equal for equal requests.
    """

    model: str = ""
    fingerprint: str = ""
    label: str = ""
    request_id: str = ""
    eos_token_ids: tuple[int, ...] = ()
    sink: int | None = None
    window: int | None = None
    pin: int | None = None
    on_overflow: Overflow | None = None
    speculation: str = ""
    ttl_seconds: int | None = None
    fork_from: ForkPoint | None = None
    inexact_resume: bool = False
    ephemeral: bool = False
    park_after_seconds: int | None = None
    disposable: bool = False
    head: bool = False
    digest: str = ""


def create(message: pb.CreateSessionRequest, limits: RequestLimits) -> CreateRequest:
    """Checks what needs neither worker nor source; raises InvalidField."""
    limits.check_label(message.client_label)
    check_text("request_id", message.request_id, MAX_REQUEST_ID_BYTES)
    check_text("model", message.model, labels.MAX_MODEL_BYTES)
    check_text("fingerprint", message.fingerprint, MAX_FINGERPRINT_BYTES)
    check_text("speculation", message.speculation, MAX_SPECULATION_BYTES)
    if len(message.eos_token_ids) > MAX_EOS_TOKEN_IDS:
        raise invalid("eos_token_ids", f"{len(message.eos_token_ids)} of them; at most {MAX_EOS_TOKEN_IDS}")
    if message.HasField("window") and message.window < 1:
        raise invalid("window", "must be at least 1")
    if message.on_overflow not in _OVERFLOW:
        raise invalid("on_overflow", f"there is no policy {message.on_overflow}")
    if message.HasField("ttl_seconds") and not 1 <= message.ttl_seconds <= MAX_TTL_SECONDS:
        raise invalid("ttl_seconds", f"must be at least 1 and at most {MAX_TTL_SECONDS}")
    if message.HasField("park_after_seconds") and not 1 <= message.park_after_seconds <= MAX_TTL_SECONDS:
        raise invalid("park_after_seconds", f"must be at least 1 and at most {MAX_TTL_SECONDS}")
    source = message.fork_from
    return CreateRequest(
        model=message.model,
        fingerprint=message.fingerprint,
        label=message.client_label,
        request_id=message.request_id,
        eos_token_ids=tuple(message.eos_token_ids),
        sink=message.sink if message.HasField("sink") else None,
        window=message.window if message.HasField("window") else None,
        pin=message.pin if message.HasField("pin") else None,
        on_overflow=_OVERFLOW[message.on_overflow],
        speculation=message.speculation,
        ttl_seconds=message.ttl_seconds if message.HasField("ttl_seconds") else None,
        fork_from=ForkPoint(SessionId(source.session_id), source.boundary if source.HasField("boundary") else None)
        if message.HasField("fork_from")
        else None,
        inexact_resume=message.inexact_resume,
        ephemeral=message.ephemeral,
        park_after_seconds=message.park_after_seconds if message.HasField("park_after_seconds") else None,
        disposable=message.disposable or message.head,
        head=message.head,
        digest=hashlib.sha256(message.SerializeToString(deterministic=True)).hexdigest(),
    )


def fork(message: pb.ForkSessionRequest, limits: RequestLimits) -> CreateRequest:
    """As a CreateSession that branches off; raises as `create`."""
    as_create = pb.CreateSessionRequest(
        fork_from=message.source,
        client_label=message.client_label,
        request_id=message.request_id,
        eos_token_ids=message.eos_token_ids,
        ttl_seconds=message.ttl_seconds if message.HasField("ttl_seconds") else None,
        inexact_resume=message.inexact_resume,
        ephemeral=message.ephemeral,
        park_after_seconds=message.park_after_seconds if message.HasField("park_after_seconds") else None,
        disposable=message.disposable,
    )
    return create(as_create, limits)


def given_up(message: pb.CloseSessionRequest) -> str:
    """The request id that a CloseSession names; empty: it names a session. Raises InvalidField."""
    check_text("request_id", message.request_id, MAX_REQUEST_ID_BYTES)
    if message.request_id and message.session_id:
        raise invalid("request_id", "a session is closed by its session_id or by this, not by both")
    return message.request_id
