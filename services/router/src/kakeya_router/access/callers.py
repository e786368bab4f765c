"""Who calls: the tenant behind a key, its quota and its sessions; to everybody else these do not exist."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from kakeya_router.contract import refusals
from kakeya_router.store.access.rights import NO_LIMIT, Quota
from kakeya_router.store.keys import pool_of
from kakeya_router.store.session_record import SessionId, SessionRecord


@dataclass(frozen=True, slots=True)
class Caller:
    """One authenticated key.

    Attributes:
        tenant: owner of the key and of the sessions it makes; empty where no keys are asked for.
        key_id: as lists show it.
        is_operator: its key is good for the operators' service, or nobody is asked for keys.
    """

    tenant: str = ""
    key_id: str = ""
    quota: Quota = NO_LIMIT
    is_operator: bool = False


ANYBODY = Caller(is_operator=True)
"""Every caller of a router that asks for no keys."""

_current: ContextVar[Caller] = ContextVar("caller", default=ANYBODY)


current: Callable[[], Caller] = _current.get
"""The caller of the running rpc."""


def enter(caller: Caller) -> None:
    """Makes it the caller for the rest of the running task."""
    _current.set(caller)


def check_issued(session_id: str) -> SessionId:
    """Raises SessionNotFound: no router issues such ids. Redis is not asked, and nothing is written down of it."""
    if pool_of(session_id) is None:
        raise refusals.not_found()
    return SessionId(session_id)


def callers_own(record: SessionRecord | None) -> SessionRecord:
    """The record if it is the caller's; raises SessionNotFound for another caller's as for one that never was."""
    if record is None or not is_callers(record):
        raise refusals.not_found()
    return record


def is_callers(record: SessionRecord) -> bool:
    return record.tenant == current().tenant
