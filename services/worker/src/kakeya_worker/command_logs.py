"""Where commands that are no service log to."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def logged_from(level: str) -> Iterator[None]:
    """Inside, what is logged goes to standard error, from a level on: standard output is for programs, too."""
    import structlog

    before = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        yield
    finally:
        structlog.configure(**before)
