"""Several answers to one chat: the first is in its session, the others in forks of that, which end with them."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kakeya import AsyncGeneration, OperationRunning
from kakeya_http_shim.conversations.said import Said

_FORK_SECONDS = 2.0
"""So long the first answer waits for the forks, whose KV is copied from it while it stands still. Later ones are made
from what the runtime remembers: so none waits for a lane for ever while it holds another."""

_BUSY_PAUSES_SECONDS = (0.02, 0.05, 0.1, 0.2, *[0.5] * 12)
"""Between tries to branch off from an answer that has begun and has no token yet: then its history is enough."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the answers begin.

    Attributes:
        place: tokens before them.
        said: of the first one's session.
    """

    session_id: str
    place: int
    said: Said


class Branches:
    """What the answers of one request tell each other.

    Args:
        number: of the others.
    """

    def __init__(self, number: int) -> None:
        self._num_coming = number
        self._all_there = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._source: asyncio.Future[Source] = loop.create_future()
        self._begun: asyncio.Future[Source] = loop.create_future()

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """Of the first: where it fails the others do."""
        try:
            yield
        except Exception as error:
            for waited_for in (self._source, self._begun):
                if not waited_for.done():
                    waited_for.set_exception(error)
                    waited_for.exception()  # the others may be gone
            raise
        self._begun.set_result(self._latest)

    async def begin(self, source: Source) -> None:
        """The first stands where the answers begin; returns when the others have branched off, or in a moment."""
        self._latest = source
        if not self._source.done():  # else they are off from where it was first
            self._source.set_result(source)
        try:
            await asyncio.wait_for(self._all_there.wait(), _FORK_SECONDS)
        except TimeoutError:
            return

    async def source(self) -> Source:
        """For the others, once the first is there. Raises as that does."""
        return await asyncio.shield(self._source)

    async def begun(self) -> Source:
        """Where the first has begun at last: another request may have come in between. Raises as that does."""
        return await asyncio.shield(self._begun)

    def come(self) -> None:
        """One of the others has its session, or never will."""
        self._num_coming -= 1
        if not self._num_coming:
            self._all_there.set()


async def branched_off(generation: Callable[[], AsyncGeneration]) -> AsyncGeneration:
    """From where an answer begins that goes on. Raises KakeyaError."""
    for pause_seconds in _BUSY_PAUSES_SECONDS:
        turn = generation()
        try:
            await turn.begin()
        except OperationRunning:
            await asyncio.sleep(pause_seconds)
        else:
            return turn
    return generation()
