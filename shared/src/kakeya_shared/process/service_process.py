"""The life of a service process: one asyncio program that runs until SIGINT or SIGTERM."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable

import structlog
import uvloop

from kakeya_shared.process import logs
from kakeya_shared.process.signals import heed
from kakeya_shared.rpc import otlp, trace_export

EXIT_CONFIG = 78
"""sysexits.h EX_CONFIG: the same start would fail again, so a supervisor need not try."""


EXIT_FAILURE = 1

_log = structlog.get_logger()


class StartError(Exception):
    """The service cannot start as it is configured; the message is one line that says why."""


def run(
    service: str,
    log_level: str,
    program: Callable[[asyncio.Event], Awaitable[None]],
    log_format: logs.LogFormat = "json",
) -> int:
    """Runs `program(stop)` with logs and tracing set up; `stop` is set by SIGINT or SIGTERM.

    Returns:
        The process's exit status: 0, EXIT_CONFIG after a StartError, whose message is the last line printed, or
        EXIT_FAILURE where the system refuses something that nobody has foreseen, which is logged.
    """
    logs.configure(service, log_level, log_format)
    try:
        otlp.METRICS.check()
        trace_export.configure(service)
    except ValueError as error:
        return _refuse(service, str(error))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_until_signalled(program))
    except StartError as error:
        return _refuse(service, str(error))
    except (OSError, UnicodeError):
        _log.critical("the system refused something", exc_info=True)
        return EXIT_FAILURE
    finally:
        trace_export.shut_down()
    return 0


def _refuse(service: str, reason: str) -> int:
    line = "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in reason)
    print(f"kakeya {service}: error: {line}", file=sys.stderr, flush=True)
    return EXIT_CONFIG


async def _until_signalled(program: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    heed((signal.SIGINT, signal.SIGTERM), stop.set)
    await program(stop)
