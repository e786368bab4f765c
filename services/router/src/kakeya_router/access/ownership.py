"""Whose a session is: to everybody else it does not exist."""

from kakeya_router.access import callers
from kakeya_router.contract import refusals, validation
from kakeya_router.store.records import SessionRecord


def check_issued(session_id: str) -> None:
    """Raises SessionNotFound: no router issues such ids. Redis is not asked, and nothing is written down of it."""
    if not validation.is_session_id(session_id):
        raise refusals.not_found()


def callers_own(record: SessionRecord | None) -> SessionRecord:
    """The record if it is the caller's; raises SessionNotFound for somebody else's as for one that never was."""
    if record is None or not is_callers(record):
        raise refusals.not_found()
    return record


def is_callers(record: SessionRecord) -> bool:
    return record.tenant == callers.current().tenant
