"""The logs of services that run within a test's own process."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog


def plain_logs() -> None:
    """One JSON line each: structlog's default prints locals, which takes minutes for a long append."""
    structlog.configure(processors=[structlog.processors.format_exc_info, structlog.processors.JSONRenderer()])


@contextmanager
def logs_as_they_were() -> Iterator[None]:
    """What a service's `main` sets up in this process ends with the context."""
    config, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.configure(**config)
        structlog.contextvars.clear_contextvars()


def beside_calls(lines: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What is logged but the one line of each call that has ended."""
    return [line for line in lines if line["event"] != "call"]
