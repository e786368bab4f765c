"""A thread that is asked for drafts, and may hang: no step waits long for it."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import structlog

from kakeya_worker.host.daemon_threads import DaemonThreads

HUNG_SECONDS = 10.0  # a machine may stand still for a while

_log = structlog.get_logger()
_T = TypeVar("_T")


class Aside:
    """Used by the engine's thread.

    Args:
        name: of the thread.
        hung_seconds: after which it is given up, if it has not come back.
    """

    def __init__(self, name: str, hung_seconds: float = HUNG_SECONDS) -> None:
        self._thread = DaemonThreads(1, name)
        self._hung_seconds = hung_seconds
        self._asked: Future[Any] | None = None  # the latest question, until it is answered
        self._asked_at = 0.0
        self._is_given_up = False

    def can_be_asked(self) -> bool:
        """Whether all that was asked before is answered."""
        if self._is_given_up or self._asked is None or self._asked.done():
            return not self._is_given_up
        if time.monotonic() - self._asked_at > self._hung_seconds:
            _log.error("a proposer hangs; nothing is drafted on its thread any more")
            self._is_given_up = True
            self._thread.close(0.0)
        return False

    def tell(self, work: Callable[[], None]) -> None:
        """Does it some time, before what is asked later."""
        if not self._is_given_up:
            self._thread.submit(work)

    def ask(self, work: Callable[[], _T], late_seconds: float) -> _T | None:
        """What becomes of it; None: that is not there in time, and is of no use later."""
        self._asked_at = time.monotonic()
        asked = self._thread.submit(work)
        self._asked = asked
        try:
            return asked.result(late_seconds)
        except TimeoutError:
            return None

    def close(self, timeout_seconds: float) -> None:
        """Ends the thread, unless it hangs."""
        self._thread.close(timeout_seconds)
