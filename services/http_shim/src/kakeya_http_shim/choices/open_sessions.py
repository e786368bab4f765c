"""Sessions of requests: every one that was opened is closed, whatever becomes of its request."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import structlog

from kakeya import AsyncClient, AsyncGeneration, AsyncSession, KakeyaError
from kakeya_shared.process.detached_tasks import DetachedTasks, unheard

_log = structlog.get_logger()

_CLOSE_SECONDS = 1.0
"""How long the end of an answer may wait for its session to be closed."""


class OpenSessions:
    """Opens sessions and closes them in tasks of their own, which no client's leaving cancels.

    Attributes:
        tasks: these, and what else of sessions goes on when its request is gone.
    """

    def __init__(self) -> None:
        self.tasks = DetachedTasks()

    @asynccontextmanager
    async def opened(self, client: AsyncClient, **options: Any) -> AsyncIterator[AsyncSession]:
        """A session with these options of `AsyncClient.create_session`. Raises KakeyaError where it cannot be opened.

        Leaving it without an error waits a moment for it to be closed, so that its lane is free for the next request
        of the same client.
        """
        session = await client.create_session(**options)  # closes by itself what it opened for nobody
        async with self._closed_after(lambda: session):
            yield session

    @asynccontextmanager
    async def turning(self, generation: AsyncGeneration) -> AsyncIterator[AsyncSession]:
        """The session of a client's turn, likewise; KakeyaError where the turn cannot begin."""
        await generation.begin()  # as above
        async with self._closed_after(lambda: _of(generation)):
            yield _of(generation)

    @asynccontextmanager
    async def _closed_after(self, session: Callable[[], AsyncSession]) -> AsyncIterator[None]:
        try:
            yield
        finally:
            closing = self.tasks.start(_close(session()))
            unheard(closing)
        await asyncio.wait({closing}, timeout=_CLOSE_SECONDS)

    async def drain(self, timeout_seconds: float) -> None:
        """Waits for every session that was left to be closed; what takes longer is left to its time to live."""
        if num_left := await self.tasks.drain(timeout_seconds):
            _log.warning("sessions were left to their time to live: the router does not answer", number=num_left)


def _of(generation: AsyncGeneration) -> AsyncSession:
    """The one that it is in now: a router that was lost while it appended may have had to open another."""
    return cast(AsyncSession, generation.session)  # of a turn that has begun


async def _close(session: AsyncSession) -> None:
    try:
        await session.close()
    except KakeyaError as error:  # its time to live ends it
        _log.warning("a session could not be closed", error=f"{type(error).__name__}: {error}")
