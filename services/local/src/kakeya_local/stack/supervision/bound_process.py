"""`python -m kakeya_local.stack.supervision.bound_process COMMAND...`: becomes COMMAND, and ends when its parent does.

Linux sends the process SIGTERM when its parent dies, however it dies, so a killed `kakeya up` leaves nothing
behind. Elsewhere the command merely runs.
"""

import ctypes
import os
import signal
import sys

from kakeya_local.stack import child_python

PARENT_VARIABLE = "KAKEYA_PARENT_PID"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h; kept across exec


def command(*arguments: str) -> tuple[str, ...]:
    """The command line that runs `arguments` bound to the process that starts it."""
    return child_python.module(__name__, *arguments)


def main(arguments: list[str]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # by which it is stopped, whatever `kakeya up` itself ignores
    if sys.platform == "linux":
        _die_with_parent()
    os.environ[PARENT_VARIABLE] = str(os.getpid())
    os.execvp(arguments[0], arguments)  # noqa: S606  # no shell is the point


def _die_with_parent() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # The parent may have died before the request; then the signal never comes.
    if os.environ.get(PARENT_VARIABLE, str(os.getppid())) != str(os.getppid()):
        raise SystemExit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
