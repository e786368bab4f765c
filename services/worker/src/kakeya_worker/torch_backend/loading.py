"""Progress of a model that is being loaded."""

import time
from collections.abc import Iterator

import structlog

_log = structlog.get_logger()
_REPORT_SECONDS = 5.0


def reported(num_layers: int) -> Iterator[int]:
    """The layers' numbers, with a log line now and then while loading them takes long."""
    reported_at = time.monotonic()
    for layer in range(num_layers):
        yield layer
        if time.monotonic() - reported_at > _REPORT_SECONDS:
            reported_at = time.monotonic()
            _log.info("loading layers", loaded=layer + 1, of=num_layers)
