"""A chat's terminal: lines in, text and notes out, also when nobody sits there."""

import io
import signal
import sys
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

with suppress(ImportError):  # gives input() line editing and history; not there on every platform
    import readline  # noqa: F401  # importing it is what works

_DIM = "\x1b[2m"
_RESET = "\x1b[0m"


_ENDINGS = {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}  # not everywhere is there a SIGHUP


class Terminal:
    """Standard output gets the answers alone; notes go to standard error, out of the way of a pipe.

    As a context manager it sees to it that SIGTERM and a closed window take Ctrl-C's way out of whatever is
    running, so that nothing is left open. Where Ctrl-C is ignored, as in a job that a script put in the
    background, they keep their meaning; so does one of them that is ignored, as under nohup.

    Args:
        is_alone: nobody is asked for anything, also where a person sits at it.
        heeds_endings: SIGTERM and a closed window are heeded where Ctrl-C is ignored, too: as a KeyboardInterrupt.

    Attributes:
        is_interactive: a person sits at it.
        ended_by: the signal that told the chat to end; None if none did.
    """

    def __init__(self, *, color: bool, is_alone: bool = False, heeds_endings: bool = False) -> None:
        self.is_interactive = sys.stdin.isatty() and sys.stdout.isatty() and not is_alone
        self._heeds_endings = heeds_endings
        self.ended_by: int | None = None
        self._handlers: dict[signal.Signals, Any] = {}
        self._color = color and sys.stderr.isatty()
        for stream in (sys.stdin, sys.stdout):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # a stray byte, or a letter the console lacks, ends no chat

    def __enter__(self) -> Self:
        if self._heeds_endings or not _ignores_ctrl_c():
            heeded = [number for number in _ENDINGS if signal.getsignal(number) is not signal.SIG_IGN]
            self._handlers = {number: signal.signal(number, self._end) for number in heeded}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def read_line(self) -> str | None:
        """What the user says next, None at the end. KeyboardInterrupt passes."""
        if self.ended_by is not None:
            return None
        if not self.is_interactive:
            line = sys.stdin.readline()
            return line.removesuffix("\n") if line else None
        try:
            return input("> ")
        except EOFError:
            self.write("\n")
            return None

    def write(self, text: str) -> None:
        """A piece of an answer, shown at once."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Something about the chat that is no part of it."""
        print(f"{_DIM}{text}{_RESET}" if self._color else text, file=sys.stderr, flush=True)

    def _end(self, number: int, _frame: FrameType | None) -> None:
        self.ended_by = number
        if _ignores_ctrl_c():
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)


def _ignores_ctrl_c() -> bool:
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN
