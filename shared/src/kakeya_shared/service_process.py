"""The life of a service process: one asyncio program that runs until SIGINT or SIGTERM."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable

from kakeya_shared import logs, tracing
from kakeya_shared.signals import heed

EXIT_CONFIG = 78
"""sysexits.h EX_CONFIG: the same start would fail again, so a supervisor need not try."""


class StartError(Exception):
    """The service cannot start as it is configured; the message is one line that says why."""


def run(service: str, log_level: str, program: Callable[[asyncio.Event], Awaitable[None]]) -> int:
    """Runs `program(stop)` with logs and tracing set up; `stop` is set by SIGINT or SIGTERM.

    Returns:
        The process's exit status: 0, or EXIT_CONFIG after a StartError, whose message is the last line printed.
    """
    logs.configure(service, log_level)
    tracing.configure(service)
    try:
        asyncio.run(_until_signalled(program))
    except StartError as error:
        print(f"kakeya {service}: error: {error}", file=sys.stderr, flush=True)
        return EXIT_CONFIG
    finally:
        tracing.shut_down()
    return 0


async def _until_signalled(program: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    heed((signal.SIGINT, signal.SIGTERM), stop.set)
    await program(stop)
