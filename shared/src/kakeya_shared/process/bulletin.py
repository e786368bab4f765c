"""A board that one task keeps up to date while it has viewers, however many; while it has none, nothing runs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kakeya_shared.process.change_log import Change, ChangeLog

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# Some libraries swallow a cancellation that meets a time-out of their own.
_HEARD_SECONDS: Final = 1.0


class Unseen(NamedTuple, Generic[K, V]):
    """What a viewer has not seen yet.

    Attributes:
        begins: it is everything; what was seen before is void.
        version: that the viewer has seen with it.
    """

    changes: Sequence[Change[K, V]]
    begins: bool
    version: int


class Bulletin(Generic[K, V]):
    """What there is, for viewers who wait for what is new.

    Attributes:
        log: what there is; who keeps it says by `publish` when it is as of now.
    """

    def __init__(self) -> None:
        self.log: ChangeLog[K, V] = ChangeLog()
        self._is_whole = False
        self._ended_by: Exception | None = None
        self._woken = asyncio.Event()

    def publish(self) -> None:
        """The log is as of now."""
        self._is_whole = True
        self._wake()

    def end(self, error: Exception) -> None:
        """Has all viewers leave with this error."""
        self._ended_by = error
        self._wake()

    async def unseen(self, seen: int | None) -> Unseen[K, V]:
        """What has changed since a version, once something has; None: everything. Raises what `end` was told."""
        while True:
            if self._ended_by is not None:
                raise self._ended_by
            if self._is_whole and seen != self.log.version:
                changes = None if seen is None else self.log.since(seen)
                if changes is None:
                    return Unseen(self.log.all(), begins=True, version=self.log.version)
                return Unseen(changes, begins=False, version=self.log.version)
            await self._woken.wait()

    def _wake(self) -> None:
        self._woken.set()
        self._woken = asyncio.Event()


class Keeper(Generic[K, V]):
    """One bulletin for all who look.

    Args:
        keep: keeps a bulletin until it is cancelled. What it raises all viewers raise; who looks then has a new one.
    """

    def __init__(self, keep: Callable[[Bulletin[K, V]], Coroutine[Any, Any, None]]) -> None:
        self._keep = keep
        self._kept: _Kept[K, V] | None = None

    @property
    def is_looked_at(self) -> bool:
        return self._kept is not None

    def end(self, error: Exception) -> None:
        """Has all leave who look now."""
        if self._kept is not None:
            self._kept.bulletin.end(error)

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[Bulletin[K, V]]:
        """The bulletin, which is kept inside."""
        kept = self._kept
        if kept is None or kept.task.done():
            kept = self._kept = _Kept(self._keep)
        kept.num_viewers += 1
        try:
            yield kept.bulletin
        finally:
            kept.num_viewers -= 1
            if not kept.num_viewers:
                if self._kept is kept:
                    self._kept = None
                await asyncio.shield(kept.end())


class _Kept(Generic[K, V]):
    """A bulletin, the task that keeps it, and how many look at it."""

    def __init__(self, keep: Callable[[Bulletin[K, V]], Coroutine[Any, Any, None]]) -> None:
        self.bulletin: Bulletin[K, V] = Bulletin()
        self.num_viewers = 0
        self.task = asyncio.create_task(self._run(keep))

    async def _run(self, keep: Callable[[Bulletin[K, V]], Coroutine[Any, Any, None]]) -> None:
        try:
            await keep(self.bulletin)
        except Exception as error:  # whatever it is: viewers wait for nothing else
            self.bulletin.end(error)

    def end(self) -> "asyncio.Task[None]":
        return asyncio.create_task(cancelled(self.task))


async def cancelled(task: "asyncio.Task[None]") -> None:
    """Cancels a task until it has ended; what it raises is its own affair."""
    while not task.done():
        task.cancel()
        # Not sooner again: another cancellation would cut short what it puts away.
        await asyncio.wait([task], timeout=_HEARD_SECONDS)
