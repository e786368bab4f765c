"""What router and worker say of their work, by their spans: how long lanes were waited for, and what was prefilled."""

import time

from tests.integration.otlp_receiver import OtlpReceiver

APPEND = "kakeya.worker.v1.VerifierService/Append"
_SERVER = 2  # opentelemetry.proto.trace.v1.Span.SpanKind
_QUIET_SECONDS, _LOOK_SECONDS = 2.0, 0.1
"""Processes send spans some 50 ms after they have ended."""


def settle(receiver: OtlpReceiver) -> None:
    """Returns when no span has come for a while."""
    number, since = len(receiver.spans), time.monotonic()
    while time.monotonic() < since + _QUIET_SECONDS:
        time.sleep(_LOOK_SECONDS)
        if len(receiver.spans) > number:
            number, since = len(receiver.spans), time.monotonic()


def num_prefilled(receiver: OtlpReceiver) -> int:
    """Tokens that the worker was told to prefill, whatever for."""
    served = [span for span in list(receiver.spans) if (span.name, span.kind) == (APPEND, _SERVER)]
    return sum(int(str(span.attributes["kakeya.appended"])) for span in served)


def lane_waits(receiver: OtlpReceiver) -> list[float]:
    """Of each call that needed a lane, the seconds until it had one: room that is made for it, and the queue."""
    waits = (span.attributes.get("kakeya.lane_wait_seconds") for span in list(receiver.spans))
    return [float(str(waited)) for waited in waits if waited is not None]
