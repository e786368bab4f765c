"""Progress on standard error: a bar in a terminal, a line for each task elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars


class Progress(Protocol):
    """Shows what is going on."""

    def task(self, name: str, num_parts: int) -> AbstractContextManager[Callable[[], None]]:
        """A task runs in this context; what it gives is called whenever a part is done."""
        ...

    def leave_out(self, num_tasks: int) -> None:
        """So many tasks fewer than was thought."""
        ...


@contextmanager
def shown(console: Console, num_tasks: int) -> Iterator[Progress]:
    """The form that suits the console."""
    if not console.is_terminal:
        yield _Lines(console, num_tasks)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=console, transient=True) as bars:
        yield _Bars(bars, num_tasks)


class _Bars:
    """All tasks in one bar, the parts of the current one in another."""

    def __init__(self, bars: Bars, num_tasks: int) -> None:
        self._bars = bars
        self._num_tasks = num_tasks
        self._whole = bars.add_task("quality", total=num_tasks)

    def leave_out(self, num_tasks: int) -> None:
        self._num_tasks -= num_tasks
        self._bars.update(self._whole, total=self._num_tasks)

    @contextmanager
    def task(self, name: str, num_parts: int) -> Iterator[Callable[[], None]]:
        current = self._bars.add_task(name, total=num_parts)
        yield lambda: self._bars.advance(current)
        self._bars.remove_task(current)
        self._bars.advance(self._whole)


class _Lines:
    def __init__(self, console: Console, num_tasks: int) -> None:
        self._console = console
        self._num_tasks = num_tasks
        self._num_done = 0

    def leave_out(self, num_tasks: int) -> None:
        self._num_tasks -= num_tasks

    @contextmanager
    def task(self, name: str, num_parts: int) -> Iterator[Callable[[], None]]:
        started = time.monotonic()
        yield lambda: None
        self._num_done += 1
        self._console.print(
            f"[{self._num_done}/{self._num_tasks}] {name} ({time.monotonic() - started:.1f} s)",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
