"""Calls that a service has served: how many, how each ended, how long they took, and a line in the log for each."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import structlog

from kakeya_shared.metrics.meters import Buckets, Meters
from kakeya_shared.rpc import tracing

OK = "OK"

_log = structlog.get_logger()

CALL_SECONDS = Buckets(
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
    "from a lookup in Redis to an answer of a minute, two or three for each power of ten",
)


@dataclass(slots=True)
class ServedCall:
    """One that runs.

    Attributes:
        reason: says how it ended: OK, or the reason of its error.
        num_responses: that a stream has sent; of an answer that breaks off this tells how far it came.
        facts: what its line says beside; see `tell`.
    """

    reason: str = OK
    num_responses: int = 0
    facts: dict[str, tracing.Value] = field(default_factory=dict)


_served: ContextVar[ServedCall | None] = ContextVar("kakeya_served_call", default=None)


def tell(**facts: tracing.Value) -> None:
    """Puts what has come of the call that is served here into its span and its line in the log.

    Args:
        facts: counts, sizes, ids; never what was said.
    """
    tracing.annotate(**facts)
    if (call := _served.get()) is not None:
        call.facts |= facts


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
        """Counts the call of "/package.Service/Method" that runs inside, and logs it."""
        call, began, name = ServedCall(), time.perf_counter(), method.removeprefix("/")
        before = _served.set(call)
        try:
            yield call
        finally:
            _served.reset(before)
            seconds = time.perf_counter() - began
            self._calls.labels(name, call.reason).inc()
            self._seconds.labels(name).observe(seconds)
            log = _log.debug if method in tracing.BESIDE_REQUESTS else _log.info
            sent = {"responses": call.num_responses} if call.num_responses else {}
            log("call", method=name, status=call.reason, seconds=round(seconds, 4), **sent, **call.facts)
