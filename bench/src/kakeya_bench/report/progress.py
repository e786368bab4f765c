"""Progress on standard error: a bar in a terminal, a line every half a minute elsewhere."""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

LINE_SECONDS = 30.0
_AGAIN_SECONDS = 5.0


class Progress(Protocol):
    """Shows how far it is."""

    def show(self, share: float, what: str) -> None:
        """So much of the whole, 0 to 1, is done, and this goes on now."""
        ...


@contextmanager
def shown(console: Console, name: str) -> Iterator[Progress]:
    """The form that suits the console."""
    if not console.is_terminal:
        with _said_again(_Lines(console, name)) as lines:
            yield lines
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[what]}", markup=False),  # it may be an error's text
    )
    # What is left is told by the speed of the whole run: rich's own half a minute may be shorter than a turn.
    with Bars(*columns, console=console, speed_estimate_period=math.inf, transient=True) as bars:
        yield _Bar(bars, name)


class _Bar:
    def __init__(self, bars: Bars, name: str) -> None:
        self._bars = bars
        self._task = bars.add_task(name, total=1.0, what="")

    def show(self, share: float, what: str) -> None:
        self._bars.update(self._task, completed=share, what=what)


class _Lines:
    def __init__(self, console: Console, name: str) -> None:
        self._console = console
        self._name = name
        self._started = self._said = time.monotonic()
        self._last = 0.0, "starting"
        self._lock = threading.Lock()

    def show(self, share: float, what: str) -> None:
        with self._lock:
            self._last = share, what
            self._say()

    def again(self) -> None:
        with self._lock:
            self._say()

    def _say(self) -> None:
        now, (share, what) = time.monotonic(), self._last
        if now - self._said < LINE_SECONDS:
            return
        self._said = now
        # What is left is not known before anything is done.
        left = f"about {(now - self._started) * (1 - share) / share:.0f} s left; " if share > 0 else ""
        self._console.print(
            f"{self._name}: {share:.0%}, {left}{what}", markup=False, emoji=False, highlight=False, soft_wrap=True
        )


@contextmanager
def _said_again(lines: _Lines) -> Iterator[_Lines]:
    """What goes on may take minutes, in which nothing new is shown."""
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.wait(_AGAIN_SECONDS):
            lines.again()

    repeating = threading.Thread(target=repeat, name="progress")
    repeating.start()
    try:
        yield lines
    finally:
        is_over.set()
        repeating.join()
