"""Answers of the store, kept for a moment: what each call asks for is looked up about once a second.

Guesses can neither fill the memory nor keep Redis busy: both kinds of answers are bounded in number, a name has
one look-up at a time, and only a few names at once that were not known before.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, field
from typing import Generic, NamedTuple, TypeVar

from kakeya_shared.process.detached_tasks import DetachedTasks

V = TypeVar("V")

# What has changed is seen within a second, the look-up itself included.
MAX_AGE_SECONDS = 0.8
# A hundred bytes to a KB each.
_MAX_ENTRIES = 4096
# At Redis at once: guesses come in crowds.
_MAX_STRANGERS = 8


class _Entry(NamedTuple, Generic[V]):
    value: V | None
    until: float


@dataclass(eq=False)
class LookupCache(Generic[V]):
    """Remembers what `look_up` answered, None as well; errors are not kept.

    Args:
        look_up: from a name to what the store knows of it.
        clock: in seconds.
    """

    _look_up: Callable[[str], Awaitable[V | None]]
    _: KW_ONLY
    max_age_seconds: float = MAX_AGE_SECONDS
    max_entries: int = _MAX_ENTRIES
    clock: Callable[[], float] = time.monotonic
    # Apart, so that guesses displace each other and nobody who is known.
    _known: OrderedDict[str, _Entry[V]] = field(default_factory=OrderedDict, init=False)
    _unknown: OrderedDict[str, _Entry[V]] = field(default_factory=OrderedDict, init=False)
    _flights: dict[str, asyncio.Task[V | None]] = field(default_factory=dict, init=False)
    _strangers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_STRANGERS), init=False)
    _tasks: DetachedTasks = field(default_factory=DetachedTasks, init=False)

    async def get(self, name: str) -> V | None:
        """The answer, at most `max_age_seconds` old; raises as `look_up`."""
        entry = self._known.get(name) or self._unknown.get(name)
        if entry is not None and self.clock() < entry.until:
            return entry.value
        flight = self._flights.get(name)
        if flight is None:
            flight = self._flights[name] = self._tasks.start(self._fetch(name))
            flight.add_done_callback(lambda done: self._landed(name, done))
        return await asyncio.shield(flight)

    async def _fetch(self, name: str) -> V | None:
        async with nullcontext() if name in self._known else self._strangers:
            begun = self.clock()
            value = await self._look_up(name)
        self._remember(name, _Entry(value, begun + self.max_age_seconds))
        return value

    def _landed(self, name: str, flight: asyncio.Task[V | None]) -> None:
        del self._flights[name]
        if not flight.cancelled():
            flight.exception()  # the waiting calls have it; when all of them are gone, it is not needed

    def _remember(self, name: str, entry: _Entry[V]) -> None:
        shelf, other = (self._unknown, self._known) if entry.value is None else (self._known, self._unknown)
        other.pop(name, None)
        shelf[name] = entry
        shelf.move_to_end(name)
        if len(shelf) > self.max_entries:
            shelf.popitem(last=False)
