"""Calls that a service has served: how many, how each ended, and how long they took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kakeya_shared.metrics.meters import Buckets, Meters

OK = "OK"

CALL_SECONDS = Buckets(
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
    "from a lookup in Redis to an answer of a minute, two or three for each power of ten",
)


@dataclass(slots=True)
class ServedCall:
    """One that runs; `reason` says how it ended: OK, or the reason of its error."""

    reason: str = OK


class CallMeters:
    """Of one service.

    Args:
        prefix: of the names, e.g. "kakeya_router".
    """

    def __init__(self, meters: Meters, prefix: str) -> None:
        self._calls = meters.counter(
            f"{prefix}_calls_total",
            'Calls that have ended, by method and by how: "OK", the reason of an error, or "CANCELLED" where the '
            "client has left or its deadline has passed. Refusals are those with another reason than OK.",
            "method",
            "reason",
        )
        self._seconds = meters.histogram(
            f"{prefix}_call_seconds",
            "From a call's coming in to its end, of a stream to the end of that.",
            "method",
            buckets=CALL_SECONDS,
        )

    @contextmanager
    def counted(self, method: str) -> Iterator[ServedCall]:
        """Counts the call of "/package.Service/Method" that runs inside."""
        call, began, name = ServedCall(), time.perf_counter(), method.removeprefix("/")
        try:
            yield call
        finally:
            self._calls.labels(name, call.reason).inc()
            self._seconds.labels(name).observe(time.perf_counter() - began)
