"""A table that is drawn anew while what it shows changes."""

import os
import shutil
import signal
import sys
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any, Self

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # a screen of its own, without a cursor
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
_EXIT_TERMINATED = 128 + signal.SIGTERM


class Redrawn:
    """On a terminal each picture takes the place of the one before, and what was there comes back at the end.

    Elsewhere, as in a file, they follow one another. As a context manager it leaves the terminal as it was also at
    Ctrl-C, SIGTERM and an error.
    """

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._before: Any = None

    def __enter__(self) -> Self:
        if self._is_terminal:
            self._before = signal.signal(signal.SIGTERM, _terminate)
            self._write(_ENTER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_terminal:
            self._write(_LEAVE)
            signal.signal(signal.SIGTERM, self._before)

    def draw(self, lines: Sequence[str]) -> None:
        """Shows as much of them as there is room for, and how many more there are."""
        if not self._is_terminal:
            self._write("\n".join([*lines, "", ""]))
            return
        width, height = shutil.get_terminal_size()
        shown = [*lines]
        if len(shown) > height:
            num_hidden = len(shown) - height + 1
            shown[height - 1 :] = [f"({num_hidden:,} more)"]
        self._write(_HOME + "\r\n".join(f"{line[:width]}{_REST_OF_LINE}" for line in shown) + _REST_OF_SCREEN)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(_EXIT_TERMINATED)
