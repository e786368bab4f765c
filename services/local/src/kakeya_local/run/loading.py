"""What is shown while a model loads: a line that changes in a terminal, one line for each step elsewhere."""

import sys
import threading
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from kakeya.cli.output.table import printable
from kakeya.cli.output.terminal import Terminal


class Loading:
    """Use as a context manager, around the start. Threads may report at any time, before, during and after that.

    Args:
        terminal: gets what is reported afterwards, where a person sits at it.
    """

    def __init__(self, model: str, terminal: Terminal, *, color: bool) -> None:
        self._terminal = terminal
        self._lock = threading.Lock()
        self._has_ended = False
        console = Console(stderr=True, no_color=not color, highlight=False)
        columns = SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False)
        is_shown = console.is_terminal
        self._line = Progress(*columns, console=console, transient=True, refresh_per_second=4) if is_shown else None
        self._task = self._line.add_task(f"starting {printable(model)}", total=None) if self._line else None

    def __enter__(self) -> Self:
        if self._line:
            self._line.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._has_ended = True
            if self._line:
                self._line.stop()

    def report(self, line: str) -> None:
        """Shows a step."""
        with self._lock:
            if self._has_ended:
                if self._terminal.is_interactive:
                    self._terminal.note(f"[{printable(line)}]")
            elif self._line and self._task is not None:
                self._line.update(self._task, description=printable(line))
            else:
                print(f"kakeya run: {printable(line)}", file=sys.stderr, flush=True)
