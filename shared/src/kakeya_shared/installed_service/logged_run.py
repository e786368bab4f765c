"""`kakeya COMMAND run-service VARIABLES LOG`: what launchd runs, which reads no files of variables and bounds no logs.

The command is a child whose output goes into a log that is replaced when it is full. Signals that end this process
are handed on, and its status is the child's. Only where the same start would fail again it ends with 0: launchd starts
anew whatever ends otherwise.
"""

import logging
import os
import pwd
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import FrameType

from kakeya_shared.installed_service import variables
from kakeya_shared.installed_service.service import ServiceError
from kakeya_shared.process.service_process import EXIT_CONFIG
from kakeya_shared.settings.service import EXIT_USAGE

MAX_LOG_BYTES = 10 << 20
NUM_OLD_LOGS = 3
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LAST_OUTPUT_SECONDS = 5.0  # what the child has started may hold its output open


def run(program: Sequence[str], environment_file: Path, log: Path, max_log_bytes: int = MAX_LOG_BYTES) -> int:
    """Runs a command to its end and returns the exit status of this process. Raises ServiceError."""
    given = variables.read(environment_file)
    home = pwd.getpwuid(os.getuid()).pw_dir  # launchd gives daemons of a user none
    try:
        written = _Log(log, max_log_bytes)
    except OSError as error:
        raise ServiceError(f"the log {log} cannot be written: {error.strerror or error}") from error
    too_soon: list[int] = []
    _heed(lambda number, _: too_soon.append(number))
    output, inlet = os.pipe()
    child = subprocess.Popen(  # noqa: S603  # the program that installed the service
        program,
        stdin=subprocess.DEVNULL,
        stdout=inlet,
        stderr=inlet,
        env={"HOME": home} | dict(os.environ) | given,
    )
    os.close(inlet)

    _heed(lambda number, _: child.send_signal(number))
    for number in too_soon:
        child.send_signal(number)
    copying = threading.Thread(target=written.copy, args=(output,), daemon=True)
    copying.start()
    status = child.wait()
    copying.join(_LAST_OUTPUT_SECONDS)
    if status in (EXIT_USAGE, EXIT_CONFIG):
        written.line(f"{' '.join(program)} ended with status {status} and is not started again: see the lines above")
        status = 0
    written.close()
    return status if status >= 0 else 128 - status


def _heed(handler: Callable[[int, FrameType | None], None]) -> None:
    for number in _FORWARDED:
        signal.signal(number, handler)


class _Log:
    """Lines in a file of at most so many bytes, with the last files beside it."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._handler = RotatingFileHandler(
            path, maxBytes=max_bytes, backupCount=NUM_OLD_LOGS, encoding="utf-8", errors="surrogateescape"
        )

    def line(self, text: str) -> None:
        self._handler.handle(logging.makeLogRecord({"msg": text}))

    def copy(self, output: int) -> None:
        """Until nobody writes to the pipe any more."""
        with open(output, "rb") as lines:
            for line in lines:
                self.line(line.decode(errors="surrogateescape").rstrip("\n"))

    def close(self) -> None:
        self._handler.close()
