"""Who calls: the tenant behind a key, and what it may use."""

from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """What a key is good for; `kakeya.admin.v1.Scope`."""

    SESSIONS = "sessions"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Quota:
    """What a tenant may use in each pool; 0 is no limit."""

    max_sessions: int = 0
    max_reserved_bytes: int = 0
    tokens_per_minute: int = 0


@dataclass(frozen=True, slots=True)
class Caller:
    """One authenticated key.

    Attributes:
        tenant: owner of the key and of the sessions it makes; empty where no keys are asked for.
        key_id: as lists show it.
    """

    tenant: str = ""
    key_id: str = ""
    quota: Quota = Quota()


ANYBODY = Caller()
"""Every caller of a router that asks for no keys."""

_current: ContextVar[Caller] = ContextVar("caller", default=ANYBODY)


def current() -> Caller:
    """The caller of the running rpc."""
    return _current.get()


def enter(caller: Caller) -> None:
    """Makes it the caller for the rest of the running task."""
    _current.set(caller)
