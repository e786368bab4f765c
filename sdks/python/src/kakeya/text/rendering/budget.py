"""How much a chat template may take: processor time, letters, list items.

A template is a program that came with a model. Rendering it in a process that can be killed would cost each prompt a
trip there and back, and each model a second interpreter; here it runs in the thread that asks, and every step that can
repeat or grow comes by `Budget`. That suffices because a template has few such steps: loops and calls (counted),
operators, filters, methods and literals (measured), and it can change no list or dict once it is made. What is measured
is the whole weight, with what lists hold counted as often as it is held: otherwise thirty times `[x, x]` is a small
list that no library function ever comes to the end of. So each single step is short, the time is looked at between
them, and a thread that renders leaves the interpreter to the others as any Python code does.
"""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from kakeya.text.rendering.marked_text import StandIns

MAX_SECONDS = 2.0
"""Of processor time in the rendering thread: on a busy machine, too, far more than any conversation takes."""
MAX_LETTERS = 1 << 22
"""Of a text, and of all that a list holds; more where more was given."""
_LETTERS_FOR_A_GIVEN_ONE = 8
_TEXTS_MADE = 64  # of the longest length, before the template is taken for one that only fills the memory
_MAX_ITEMS = 1 << 18
_MAX_DEPTH = 200  # of lists within lists; the library compares and hashes them by recursion
_MAX_BITS = 1 << 14
_SWEPT_ITEMS = 1 << 20
_LONE_REFERENCES = 2  # the budget's own and that of who counts


class OverBudget(Exception):
    """A template went beyond its bounds; the message says which.

    Attributes:
        by_time: with more time it might have come to its end.
    """

    def __init__(self, reason: str, *, by_time: bool = False) -> None:
        super().__init__(reason)
        self.by_time = by_time


class _Size(NamedTuple):
    weight: int
    depth: int


class Budget:
    """What is left of the bounds for one rendering.

    Args:
        num_given_letters: of the texts that the template is given.
        stand_ins: of marked texts; None where none is marked.
    """

    def __init__(self, num_given_letters: int = 0, stand_ins: StandIns | None = None) -> None:
        self.max_letters = MAX_LETTERS + _LETTERS_FOR_A_GIVEN_ONE * num_given_letters
        self._letters_left = _TEXTS_MADE * self.max_letters
        self.stand_ins = stand_ins
        self._sizes: dict[int, tuple[_Size, object]] = {}  # the object too: its id may be another's once it is gone
        self._items_until_swept = _SWEPT_ITEMS
        self._seconds = _patience.get()
        self._began_at, self._cpu_began_at = time.monotonic(), time.thread_time()

    def step(self) -> None:
        """Raises OverBudget where the time is up."""
        if time.monotonic() - self._began_at > self._seconds and (
            time.thread_time() - self._cpu_began_at > self._seconds
        ):
            raise OverBudget(f"it takes more than {self._seconds:g} s of processor time", by_time=True)

    def counted(self, items: Iterable[Any]) -> Iterator[Any]:
        """The items, with a step before each."""
        for item in items:
            self.step()
            yield item

    def made(self, value: Any) -> Any:
        """What an operation brought forth, once it is known not to be too large. Raises OverBudget."""
        self.step()
        if isinstance(value, str):
            self.check_letters(len(value))
            self._letters_left -= len(value)
            if self._letters_left < 0:
                raise OverBudget("the texts that it makes fill the memory")
            # Some operations leave a bare text of a marked one.
            return self.stand_ins.rewrap(value) if self.stand_ins is not None and type(value) is str else value
        if isinstance(value, list | tuple | dict | set | frozenset):
            self.check_items(len(value))
            self.check_letters(self.weight(value))
        elif isinstance(value, int):
            self.check_bits(value.bit_length())
        return value

    def added(self, first: Any, second: Any, whole: Any) -> Any:
        """One list behind another, whose size is theirs: a template may put together a long one, item by item."""
        if isinstance(whole, list | tuple):
            sizes = self._size(first), self._size(second)
            self._keep(whole, _Size(sizes[0].weight + sizes[1].weight, max(sizes[0].depth, sizes[1].depth)))
        return self.made(whole)

    def check_letters(self, num_letters: int) -> None:
        """Raises OverBudget where a text, or a list with all that it holds, would be too long."""
        if num_letters > self.max_letters:
            raise OverBudget(f"it makes a text or a list of more than {self.max_letters:,} letters")

    def check_items(self, num_items: int) -> None:
        """Raises OverBudget where a list would be too long."""
        if num_items > _MAX_ITEMS:
            raise OverBudget(f"it makes a list of more than {_MAX_ITEMS:,} items")

    def check_bits(self, num_bits: int) -> None:
        """Raises OverBudget where a number would be too large."""
        if num_bits > _MAX_BITS:
            raise OverBudget(f"it makes a number of more than {_MAX_BITS:,} bits")

    def weight(self, value: Any) -> int:
        """Letters and items of all that a value holds. Raises OverBudget where it holds itself too deep."""
        return self._size(value).weight

    def _size(self, value: Any) -> _Size:
        if isinstance(value, str):
            return _Size(len(value) + 1, 0)
        if not isinstance(value, list | tuple | dict | set | frozenset):
            return _Size(1, 0)
        known = self._sizes.get(id(value))
        if known is not None:
            return known[0]
        items = (part for item in value.items() for part in item) if isinstance(value, dict) else value
        weight, depth = 1, 0
        for each in map(self._size, items):
            weight, depth = weight + each.weight, max(depth, each.depth)
        if depth >= _MAX_DEPTH:
            raise OverBudget(f"it makes lists within lists, more than {_MAX_DEPTH} deep")
        return self._keep(value, _Size(weight, depth + 1))

    def _keep(self, value: Any, size: _Size) -> _Size:
        self._sizes[id(value)] = (size, value)
        self._items_until_swept -= len(value)
        if self._items_until_swept < 0:
            self._sweep()
        return size

    def _sweep(self) -> None:
        """Forgets the lists that only this budget holds still, such as those that were added to others."""
        lone = [key for key, kept in self._sizes.items() if sys.getrefcount(kept[1]) <= _LONE_REFERENCES]
        for key in lone:
            del self._sizes[key]
        self._items_until_swept = _SWEPT_ITEMS


_patience: ContextVar[float] = ContextVar("patience", default=MAX_SECONDS)
_current: ContextVar[Budget] = ContextVar("budget")


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Templates that are rendered meanwhile take at most this processor time each: for threads that others wait for."""
    token = _patience.set(seconds)
    try:
        yield
    finally:
        _patience.reset(token)


@contextmanager
def spending(budget: Budget) -> Iterator[Budget]:
    """What is rendered or compiled meanwhile takes from this budget."""
    token = _current.set(budget)
    try:
        yield budget
    finally:
        _current.reset(token)


def current() -> Budget:
    """The budget of what is rendered now."""
    return _current.get()
