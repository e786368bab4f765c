"""Progress on standard error: a bar in a terminal, a line every half a minute elsewhere."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

LINE_SECONDS = 30.0


class Progress(Protocol):
    """Shows how far it is."""

    def show(self, share: float, what: str) -> None:
        """So much of the whole, 0 to 1, is done, and this goes on now."""
        ...


@contextmanager
def shown(console: Console, name: str) -> Iterator[Progress]:
    """The form that suits the console."""
    if not console.is_terminal:
        yield _Lines(console, name)
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"), TimeElapsedColumn(),
        TextColumn("left:"), TimeRemainingColumn(),
        TextColumn("{task.fields[what]}", markup=False),  # it may be an error's text
    )  # fmt: skip
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

    def show(self, share: float, what: str) -> None:
        now = time.monotonic()
        if now - self._said < LINE_SECONDS or share <= 0:
            return
        self._said = now
        left = (now - self._started) * (1 - share) / share
        self._console.print(
            f"{self._name}: {share:.0%}, about {left:.0f} s left; {what}",
            markup=False, emoji=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
