"""How far a run is: a bar in a terminal, a line each half a minute elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread

from rich.console import Console

from kakeya_bench.report.progress import shown

_LOOK_SECONDS = 1.0


def _nothing() -> int:
    return 0


@dataclass
class _Stage:
    total: float = 0.0
    unit: str = ""
    done: Callable[[], float] = _nothing
    found: Callable[[], int] = _nothing
    what: str = ""

    @property
    def share(self) -> float:
        return min(1.0, self.done() / self.total) if self.total else 0.0

    def __str__(self) -> str:
        if not self.total:
            return self.what
        parts = [f"{min(self.done(), self.total):.0f} of {self.total:.0f} {self.unit}", self.what]
        return "; ".join(filter(None, [*parts, f"{self.found() or 'no'} violations so far"]))


class Progress:
    """What there is to be seen of a run, which writes it down as it goes; another thread looks at it.

    Attributes:
        stage: what is done now; replaced as a whole, so that a look never mixes two.
    """

    def __init__(self) -> None:
        self.stage = _Stage(what="starting")

    def begin(self, total: float, unit: str, done: Callable[[], float], found: Callable[[], int]) -> None:
        """A stage: how long it takes is told by its own speed.

        Args:
            total: how much there is to do.
            unit: what is counted.
            done: tells how much of it is done.
            found: tells how much was found until now that must not be.
        """
        self.stage = _Stage(total, unit, done, found)

    @property
    def what(self) -> str:
        """What goes on now."""
        return self.stage.what

    @what.setter
    def what(self, what: str) -> None:
        self.stage.what = what


@contextmanager
def watched(console: Console, name: str) -> Iterator[Progress]:
    """Shows a run's progress for as long as the context lasts."""
    progress, over = Progress(), Event()

    def look() -> None:
        while not over.is_set():
            stage = progress.stage
            with shown(console, name) as bar:
                while not over.wait(_LOOK_SECONDS) and progress.stage is stage:
                    bar.show(stage.share, str(stage))

    thread = Thread(target=look, name="progress")
    thread.start()
    try:
        yield progress
    finally:
        over.set()
        thread.join()
