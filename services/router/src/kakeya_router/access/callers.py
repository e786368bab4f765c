"""Who calls: the tenant behind a key, and its quota."""

from contextvars import ContextVar
from dataclasses import dataclass

from kakeya_router.store.access.rights import NO_LIMIT, Quota


@dataclass(frozen=True, slots=True)
class Caller:
    """One authenticated key.

    Attributes:
        tenant: owner of the key and of the sessions it makes; empty where no keys are asked for.
        key_id: as lists show it.
    """

    tenant: str = ""
    key_id: str = ""
    quota: Quota = NO_LIMIT


ANYBODY = Caller()
"""Every caller of a router that asks for no keys."""

_current: ContextVar[Caller] = ContextVar("caller", default=ANYBODY)


def current() -> Caller:
    """The caller of the running rpc."""
    return _current.get()


def enter(caller: Caller) -> None:
    """Makes it the caller for the rest of the running task."""
    _current.set(caller)
