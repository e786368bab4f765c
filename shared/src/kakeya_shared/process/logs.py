"""structlog: one line an event on standard error, with trace and session ids, never token contents."""

import logging
import os
import sys
from typing import Literal

import structlog
from opentelemetry import trace
from structlog.typing import EventDict, WrappedLogger

LogFormat = Literal["auto", "json", "console"]
"""Of a line: an object of JSON, or what people read; auto: by whether standard error is a terminal."""

# What is in a stranger's headers, or when a client hangs up, must not fill the log.
_OF_HEADERS = ("opentelemetry.baggage", "opentelemetry.trace")
_OF_CALLS = "grpc._cython.cygrpc"


def _add_trace_ids(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
        event["span_id"] = trace.format_span_id(context.span_id)
    return event


def configure(service: str, level: str = "info", form: LogFormat = "json") -> None:
    """Sends the logs of this process, other libraries' included, to standard error."""
    threshold = logging.getLevelNamesMapping()[level.upper()]

    def add_service(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["service"] = service  # not a context variable: threads begin with an empty context
        return event

    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        add_service,
        structlog.processors.add_log_level,
        _add_trace_ids,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _renderer(form, sys.stderr.isatty()),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(threshold, logging.INFO), force=True)
    _keep_strangers_out()


def _renderer(form: LogFormat, is_terminal: bool) -> structlog.typing.Processor:
    if form == "json" or (form == "auto" and not is_terminal):
        return structlog.processors.JSONRenderer()
    return structlog.dev.ConsoleRenderer(
        colors=is_terminal and not os.environ.get("NO_COLOR"), exception_formatter=structlog.dev.plain_traceback
    )


def _keep_strangers_out() -> None:
    for name in _OF_HEADERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger(_OF_CALLS).addFilter(_is_no_hang_up)  # a second time it changes nothing


def _is_no_hang_up(record: logging.LogRecord) -> bool:
    """False for what gRPC says when a client cancels while its answer is being written."""
    return "ExecuteBatchError" not in record.getMessage()
