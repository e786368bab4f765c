"""A real `kakeya run` in a terminal, for tests: typed at, and read."""

import os
import pty
import re
import select
import time
from fcntl import ioctl
from pathlib import Path
from struct import pack
from termios import TIOCSCTTY, TIOCSWINSZ

from tests.end_to_end.marked_process import END_SECONDS, MarkedProcess

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
CTRL_C = "\x03"
AGAIN_SECONDS = 20.0


class RunInTerminal(MarkedProcess):
    """`kakeya run` with some words, as the foreground of a terminal of its own: what ^C reaches there it reaches here.

    Attributes:
        shown: all that it wrote, without what moves the cursor.
    """

    def __init__(self, *words: str, environment: dict[str, str] | None = None, cwd: Path | None = None) -> None:
        self.shown = ""
        self._master, slave = pty.openpty()
        ioctl(slave, TIOCSWINSZ, pack("HHHH", 40, 140, 0, 0))
        streams = {
            "stdin": slave,
            "stdout": slave,
            "stderr": slave,
            "start_new_session": True,
            "preexec_fn": lambda: ioctl(0, TIOCSCTTY, 0),
        }
        told = {"TERM": "xterm", "COLUMNS": "140"} | (environment or {})
        super().__init__("run", *words, streams=streams, environment=told, cwd=cwd)
        os.close(slave)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, pattern: str) -> "re.Match[str]":
        """Until something is shown behind all that was waited for before; that is gone then."""
        deadline = time.monotonic() + END_SECONDS
        while not (found := re.search(pattern, self.shown)):
            assert time.monotonic() < deadline, self.shown
            assert self._read(), f"ended too early: {self.shown}"
        self.shown = self.shown[found.end() :]
        return found

    def leave(self) -> int:
        """Types Ctrl-C at the prompt; its exit status.

        Again after a while: Python's readline shows the prompt before it waits, and does not notice what comes between
        (55 of 42,811 that were typed at once).
        """
        deadline = time.monotonic() + END_SECONDS
        while True:
            self.type(CTRL_C)
            again = time.monotonic() + AGAIN_SECONDS
            while time.monotonic() < again:
                if self._popen.poll() is not None:
                    return self._popen.returncode
                self._read()
            assert time.monotonic() < deadline, self.shown

    def _read(self) -> bool:
        """Waits a little for more; False where nothing will come any more."""
        if not select.select([self._master], [], [], 0.1)[0]:
            return True
        try:
            self.shown += _ESCAPES.sub("", os.read(self._master, 65_536).decode(errors="replace"))
        except OSError:
            return False
        return True
