"""A command that takes minutes: what it prints goes to a log, how far it is to stderr."""

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_COMPILED = re.compile(r"\[(\d+)/(\d+)\]")  # ninja's progress
_PROGRESS_SECONDS = 15.0
_NUM_LOG_LINES = 20


class RivalFailed(Exception):
    """A rival could not be built or started, or did not run to its end; the message says why."""


class CommandFailed(RivalFailed):
    """A command ended with an error; the message quotes the end of its log."""


def run_logged(command: Sequence[str | Path], log: Path) -> None:
    """Runs a command and appends what it prints to a log.

    Raises:
        CommandFailed: its status is not 0.
    """
    started = said = time.monotonic()
    with (
        log.open("a") as written,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process,
    ):
        for line in process.stdout or ():
            written.write(line)
            compiled = _COMPILED.search(line)
            if compiled and time.monotonic() - said >= _PROGRESS_SECONDS:
                said = time.monotonic()
                say(f"  compiled {compiled[1]} of {compiled[2]} after {said - started:.0f} s")
    if process.returncode:
        raise CommandFailed(f"{command[0]} ended with status {process.returncode}; the end of {log}:\n{end_of(log)}")


def end_of(log: Path) -> str:
    """Its last lines, which tell why a process failed."""
    return "".join(log.read_text(errors="replace").splitlines(keepends=True)[-_NUM_LOG_LINES:])


def say(line: str) -> None:
    """Tells the waiting user."""
    print(line, file=sys.stderr, flush=True)
