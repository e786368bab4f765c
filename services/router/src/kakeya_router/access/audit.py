"""One log line for each thing that an operator did or was refused: who, what, to what, with which outcome.

Lines have the event "audit" and never a secret: of credentials they carry the id.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import structlog

from kakeya_router.access import callers
from kakeya_router.access.callers import Caller
from kakeya_shared.errors.tree import KakeyaError

_log = structlog.get_logger()

DONE = "done"
CANCELLED = "CANCELLED"
"""Ended before it was known whether it is done: the router was shut down meanwhile."""

_UNFORESEEN = "INTERNAL"


@dataclass(slots=True)
class Entry:
    """What the line will say; `subject` may become known in the middle."""

    action: str
    subject: str


@contextmanager
def action(name: str, subject: str = "") -> Iterator[Entry]:
    """Writes the line at the end, with the reason of the error where there is one.

    Args:
        name: such as "key.create".
        subject: id of what it is done to.
    """
    entry = Entry(name, subject)
    outcome = _UNFORESEEN
    try:
        yield entry
        outcome = DONE
    except KakeyaError as error:
        outcome = error.reason
        raise
    except asyncio.CancelledError:
        outcome = CANCELLED
        raise
    finally:
        _write(callers.current(), entry, outcome)


def refused(caller: Caller, method: str, error: KakeyaError) -> None:
    """A call that never came to its service."""
    _write(caller, Entry(f"call {method}", ""), error.reason)


def _write(caller: Caller, entry: Entry, outcome: str) -> None:
    _log.info("audit", **asdict(entry), outcome=outcome, actor_tenant=caller.tenant, actor_key_id=caller.key_id)
