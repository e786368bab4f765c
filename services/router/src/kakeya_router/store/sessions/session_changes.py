"""What the store of sessions is told of a change."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, TypedDict

from kakeya_router.store.session_record import Features

INTERRUPTED = "!"
"""As a waiter's id and tenant: an operation that has lost its lane. It comes before all others, the oldest first."""


class Cause(StrEnum):
    """Why a session is closed; see begin_close.lua."""

    REQUEST = "request"
    EXPIRY = "expiry"
    ABANDON = "abandon"
    IDLE = "idle"
    SURPLUS = "surplus"
    BOUND = "bound"


class ClosedOnly(TypedDict, total=False):
    """Where alone a session is closed, beside what its cause says: see `ClosingStore.begin_close`."""

    idle_ms: int
    wanted_by: str
    limit: int
    max_parked: int
    max_bytes: int


class Closes(IntEnum):
    """Which sessions an operation closes at its end: see end_operation.lua."""

    NONE = 0
    EPHEMERAL = 1
    ANY = 2


class Limits(NamedTuple):
    """How many lanes a tenant, and one of its keys, may have in a pool; 0 is no limit."""

    max_sessions: int = 0
    max_reserved_bytes: int = 0
    key_max_sessions: int = 0


UNLIMITED = Limits()


class TimesToLive(NamedTuple):
    """How long a session without a lane is kept: one that cannot be resumed, and one that can."""

    lost_ms: int
    parked_ms: int


@dataclass(frozen=True, slots=True)
class Intent:
    """What an operation is about to do, as its record says.

    Attributes:
        kind: "append", "generate", or "fork" or "park": of one that only ends what a vanished router left on a session
            that is to be forked or parked.
        parameters: of the operation, as JSON holds them; never the tokens of an append.
        num_tokens, digest: of an append; of a Generate: of the append that it begins with.
        at_length: of a new operation: the history length at which alone it begins; None: wherever that ends.
        behind: of a new operation: op_id of the latest one, behind which alone it begins; empty: behind any.
        is_charged: whether the tenant's quota of tokens counts.
        seed: of a Generate.
        op_id: that its client has given to a Generate; empty: none.
        may_begin: it need not be the session's latest operation.
        features: that its worker has to name.
    """

    kind: str
    parameters: Mapping[str, Any]
    num_tokens: int = 0
    digest: str = ""
    is_charged: bool = True
    seed: int = 0
    op_id: str = ""
    at_length: int | None = None
    behind: str = ""
    may_begin: bool = True
    features: Features = frozenset()
