"""How fast an answer comes, as metrics have it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from kakeya_router.metrics import RouterMetrics


class Pace:
    """Of one answer as this router relays it, whichever workers it comes from.

    Args:
        tenant: whose it is.
        began: when its call came in, on the monotonic clock.
        is_whole: it has no tokens that came before, in another call.

    Attributes:
        first_token_seconds: from the call's coming in to the first token that its client was sent; 0: none yet.
    """

    def __init__(self, metrics: RouterMetrics, tenant: str, began: float, *, is_whole: bool) -> None:
        self._metrics = metrics
        self._tenant = tenant
        self._began = began
        self._is_whole = is_whole
        self._num_tokens = 0
        self._first_at = 0.0
        self.first_token_seconds = 0.0

    def sees_first(self) -> None:
        """The client is sent tokens, those of before it asked again included."""
        if not self.first_token_seconds:
            self.first_token_seconds = time.monotonic() - self._began

    def count(self) -> None:
        """One more token that a worker has generated."""
        if not self._num_tokens:
            self.sees_first()
            self._first_at = time.monotonic()
            if self._is_whole:
                self._metrics.first_token_seconds.observe(self.first_token_seconds)
        self._num_tokens += 1

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Counts the tokens that came inside, however the answer ends."""
        try:
            yield
        finally:
            self._metrics.count_generated(self._tenant, self._num_tokens)
            if self._num_tokens > 1:
                seconds = time.monotonic() - self._first_at
                self._metrics.token_seconds.observe(seconds / (self._num_tokens - 1))
