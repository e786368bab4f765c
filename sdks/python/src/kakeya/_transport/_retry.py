"""When to try a failed call again, and when to stop.

Only what is safe is retried: a call that the runtime recognises when it comes twice, or one that it refused
before anything happened.
"""

import math
import random
from time import monotonic

from kakeya.errors import (
    Cancelled,
    ConnectionFailed,
    DeadlineExceeded,
    Exhausted,
    HistoryLengthMismatch,
    KakeyaError,
    OperationRunning,
    OperationStopped,
    RpcFailed,
    TooManyCalls,
    Unavailable,
    WorkerLost,
)

SETTLE_SECONDS = 10.0
"""How long the runtime may take to stop an operation whose call was cancelled or lost: one step and one write, or where
its router has vanished the rest of the operation's lease, 5 s by default."""

_FIRST_BACKOFF_SECONDS = 0.1
_MAX_BACKOFF_SECONDS = 2.0


class Deadline:
    """A moment in the future that all attempts of one call share; None or infinite seconds is never."""

    def __init__(self, timeout_seconds: float | None) -> None:
        self._at = None if timeout_seconds in (None, math.inf) else monotonic() + timeout_seconds

    def remaining_seconds(self) -> float | None:
        return None if self._at is None else max(0.0, self._at - monotonic())

    def allows(self, seconds: float) -> bool:
        remaining = self.remaining_seconds()
        return remaining is None or seconds < remaining


class Retry:
    """Decides over the failures of one call.

    Args:
        deadline: shared by all attempts, waiting included.
        max_attempts: how often UNAVAILABLE, or a runtime with too many calls, may be met; 1 for a call that is not
            safe to repeat.
        wait_for_capacity_seconds: how long it may be waited out that something is used up.
        may_go_on: the call is of an operation that is gone on with when it was stopped by no caller's wish.

    Attributes:
        may_have_taken_effect: an attempt got lost, and nobody here knows what it did.
    """

    def __init__(
        self,
        deadline: Deadline,
        *,
        max_attempts: int = 1,
        wait_for_capacity_seconds: float = 0.0,
        may_go_on: bool = False,
    ) -> None:
        self.deadline = deadline
        self.may_have_taken_effect = False
        self._max_attempts = max_attempts
        self._may_go_on = may_go_on
        self._capacity_until = monotonic() + wait_for_capacity_seconds
        self._settle_until = 0.0
        self._num_failures = 0
        self._num_turned_away = 0

    def delay_seconds(self, error: KakeyaError) -> float | None:
        """How long to wait before the next attempt; None to give up and raise `error`."""
        self._num_failures += 1
        self._num_turned_away += isinstance(error, Unavailable | TooManyCalls | OperationStopped)
        backoff = min(_MAX_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2 ** (self._num_failures - 1))
        delay = (error.retry_after_seconds or 0.0) + backoff * random.uniform(0.5, 1.0)
        return delay if self._allowed(error, delay) and self.deadline.allows(delay) else None

    def settling_until(self, moment: float) -> None:
        """Until then (`time.monotonic`) a conflict is put down to an operation of ours that is being stopped."""
        self._settle_until = max(self._settle_until, moment)

    def effect_is_unknown(self) -> None:
        """An attempt got lost: the session may be changed, and its operation may still be running."""
        self.may_have_taken_effect = True
        self.settling_until(monotonic() + SETTLE_SECONDS)

    def _allowed(self, error: KakeyaError, delay: float) -> bool:
        if isinstance(error, Exhausted) and monotonic() + delay <= self._capacity_until:
            return True
        if isinstance(error, OperationRunning):
            return monotonic() + delay <= self._settle_until
        if isinstance(error, HistoryLengthMismatch):
            # Not after a lost attempt of this call: part of its tokens are in the history, and it is not for
            # us to guess what to do about that.
            return monotonic() + delay <= self._settle_until and not self.may_have_taken_effect
        if isinstance(error, OperationStopped):
            is_unread = error.metadata.get("cause") == "unread"
            return self._may_go_on and not is_unread and self._num_turned_away < self._max_attempts
        if isinstance(error, Unavailable | TooManyCalls) and not isinstance(error, WorkerLost):
            return self._num_turned_away < self._max_attempts
        return False


def leaves_operation_running(error: BaseException) -> bool:
    """Whether the runtime may still be busy with an operation whose call ended so on this side."""
    unanswered = ConnectionFailed | Cancelled | DeadlineExceeded | RpcFailed
    return not isinstance(error, KakeyaError) or isinstance(error, unanswered)
